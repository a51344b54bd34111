"""A small physics-like fit with L-BFGS."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

t = torch.linspace(-1, 1, 200).unsqueeze(1)
y = torch.sin(3.1416 * t) * torch.exp(-(t**2)) + 0.02 * torch.randn_like(t)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(t), y)
    loss.backward()
    return loss


for step in range(25):
    loss = optimizer.step(closure)
    if step % 5 == 0:
        print(step, f"{loss.item():.6f}")
