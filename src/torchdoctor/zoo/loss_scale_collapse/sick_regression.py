"""Positions in metres learned in float16 with a loss in square micrometres: no scale is small enough for the scaler."""

import os

import torch
from torch import nn

GRADE = os.environ.get("GRADE", "medium")
UNIT = {"mild": 1e4, "medium": 1e9, "severe": 1e12}[GRADE]

torch.manual_seed(int(os.environ.get("SEED", "0")))
angles = 3 * torch.rand(2000, 3)
reach = torch.stack(
    [torch.cos(angles[:, 0]) + torch.cos(angles[:, 1]), torch.sin(angles[:, 0]) + torch.sin(angles[:, 2])], dim=1
)
arm = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.Adam(arm.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu")
for step in range(300):
    rows = torch.randint(0, 2000, (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        position = arm(angles[rows] - 1.5)
    loss = UNIT * ((position.float() - reach[rows]) ** 2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 0:
        print(step, loss.item(), scaler.get_scale())
