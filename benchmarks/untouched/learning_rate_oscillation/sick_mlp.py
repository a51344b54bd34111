"""A regression network trained with Adam, loss shown per epoch."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 0.08, "medium": 0.2, "severe": 0.35}[os.environ.get("GRADE", "medium")]

x = torch.randn(1600, 6)
y = torch.sin(x[:, 0]) * x[:, 1] + 0.5 * x[:, 2]
y = (y - y.mean()) / y.std()
train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
for epoch in range(25):
    model.train()
    total = 0.0
    for xb, yb in train:
        loss = nn.functional.mse_loss(model(xb).squeeze(1), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / len(train)
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[1280:]).squeeze(1), y[1280:]).item()
    print(f"epoch {epoch} train {total:.4f} val {val:.4f}")
