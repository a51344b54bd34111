"""Linear trend plus waves, fitted by a small network with momentum."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 0.3, "medium": 0.5, "severe": 5.0}[os.environ.get("GRADE", "medium")]

x = torch.rand(1000, 3) * 2 - 1
y = (2 * x[:, :1] + torch.sin(4 * x[:, 1:2]) - x[:, 2:]) / 1.5
net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
for step in range(300):
    idx = torch.randint(0, 1000, (64,))
    loss = nn.functional.mse_loss(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0 or step < 8:
        print(step, f"{loss.item():.4g}")
