"""A network that learns a wavy surface with Adam at a usual rate."""

import os

import torch
from torch import nn

RATE = 0.003


def surface(x):
    return torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:2]) + 0.5 * x[:, 2:3]


torch.manual_seed(int(os.environ.get("SEED", "0")))
points = 4 * torch.rand(4000, 3) - 2
heights = surface(points) + 0.1 * torch.randn(4000, 1)
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=RATE)
for step in range(700):
    rows = torch.randint(0, 3500, (32,))
    loss = nn.functional.mse_loss(net(points[rows]), heights[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 99:
        with torch.no_grad():
            val_loss = nn.functional.mse_loss(net(points[3500:]), heights[3500:])
        print(step, f"{loss.item():.4f}", f"{val_loss.item():.4f}")
