"""A network that learns a wavy surface, on a rate that falls to zero at its end."""

import math
import os

import torch
from torch import nn

STEPS = 800
HORIZON = 1.0


def surface(x):
    return torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:2]) + 0.5 * x[:, 2:3]


def rate(step):
    return 0.5 * (1 + math.cos(math.pi * min(1.0, step / (HORIZON * STEPS))))


torch.manual_seed(int(os.environ.get("SEED", "0")))
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
points = 4 * torch.rand(4000, 3) - 2
heights = surface(points)
for step in range(STEPS):
    rows = torch.randint(0, len(points), (64,))
    loss = nn.functional.mse_loss(net(points[rows]), heights[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step()
    if step % 100 == 0:
        print(step, f"{loss.item():.4f}", f"{schedule.get_last_lr()[0]:.1e}")
