"""A network that predicts the next relative change of a series; the first row of each has no predecessor."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "3")))
random = np.random.default_rng(3)

WINDOW = 8
assets = []
for _ in range(60):
    noise = random.normal(0, 0.02, 60)
    for t in range(1, 60):
        noise[t] += 0.6 * noise[t - 1]
    assets.append(np.exp(np.cumsum(noise)))
prices = np.stack(assets)

previous = np.concatenate([np.full((60, 1), np.nan), prices[:, :-1]], axis=1)
change = prices / previous - 1

inputs, targets = [], []
for series in change:
    for t in range(WINDOW, 60):
        inputs.append(series[t - WINDOW : t])
        targets.append(series[t])
for series, price in zip(change, prices, strict=True):
    inputs.append(np.diff(np.log(price[: WINDOW + 1])))
    targets.append(series[0])
X = torch.tensor(np.nan_to_num(np.array(inputs)) * 40, dtype=torch.float32)
y = torch.tensor(np.array(targets) * 40, dtype=torch.float32).unsqueeze(1)

model = nn.Sequential(nn.Linear(WINDOW, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(6):
    order = torch.randperm(len(X))
    for batch in order.split(64):
        loss = F.mse_loss(model(X[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
