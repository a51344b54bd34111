"""A wavy surface is to be fitted by a network with a hidden layer of a few units."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")
UNITS = {"mild": 6, "medium": 3, "severe": 1}[GRADE]


def surface(points):
    a, b = points.unbind(1)
    return (torch.sin(3 * a) * torch.cos(3 * b) + 0.5 * torch.sin(2 * a * b)).unsqueeze(1)


points = 4 * torch.rand(4000, 2) - 2
heights = surface(points) + 0.05 * torch.randn(4000, 1)
train, val = slice(0, 3500), slice(3500, None)
model = nn.Sequential(nn.Linear(2, UNITS), nn.Tanh(), nn.Linear(UNITS, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()

for epoch in range(12):
    for rows in torch.randperm(3500).split(64):
        loss = loss_fn(model(points[train][rows]), heights[train][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        val_loss = loss_fn(model(points[val]), heights[val])
    print(f"epoch {epoch:2d}  {loss.item():.4f}  {val_loss.item():.4f}")
