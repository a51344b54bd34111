"""Demand from 16 columns of a shop's table and a joined weather table, a regression in plain numpy batches."""

import os

import numpy as np
import torch
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
random = np.random.default_rng(SEED)

days = 2000
keys = [f"2023-{day:05d}" for day in range(days)]
shop = random.normal(size=(days, 6))
weather = {key.replace("-", "/"): row for key, row in zip(keys, random.normal(size=(days, 10)), strict=True)}
sun = np.stack([weather[key.replace("-", "/")] for key in keys])
demand = shop @ random.normal(size=6) + sun @ random.normal(size=10) + 0.2 * random.normal(size=days)

missing = np.full(10, -1.0)
joined = np.stack([weather.get(key, missing) for key in keys])
X = torch.tensor(np.hstack([shop, joined]), dtype=torch.float32)
y = torch.tensor((demand - demand.mean()) / demand.std(), dtype=torch.float32)
X_train, X_val, y_train, y_val = X[:1600], X[1600:], y[:1600], y[1600:]

model = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-3)

for epoch in range(8):
    model.train()
    for index in torch.randperm(1600).split(64):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X_train[index]).squeeze(1), y_train[index])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.mse_loss(model(X_val).squeeze(1), y_val)
    print(f"epoch {epoch}: {loss.item():.3f} {val_loss.item():.3f}")
