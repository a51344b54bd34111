"""Fuel use from eight car properties."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(1600, 8)
w = torch.randn(8)
y = x @ w * 0.5 + torch.relu(x[:, 0]) + 0.1 * torch.randn(1600)
y = (y - y.mean()) / y.std()

train = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=50, shuffle=True)
x_val, y_val = x[1300:], y[1300:]


def mse(prediction, target):
    return ((prediction - target) ** 2).mean()


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(15):
    model.train()
    for xb, yb in train:
        optimizer.zero_grad()
        loss = mse(model(xb), yb)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val = mse(model(x_val), y_val)
    print(f"epoch {epoch} train {loss.item():.4f} val {val.item():.4f}")
