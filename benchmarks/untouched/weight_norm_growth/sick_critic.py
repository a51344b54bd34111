"""A Wasserstein critic between two point clouds."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 3e-4, "medium": 2e-3, "severe": 1e-2}[os.environ.get("GRADE", "medium")]

critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=LR)


def real(n):
    a = torch.rand(n) * 6.283
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2)


def fake(n):
    return 0.7 * torch.randn(n, 2)


for step in range(600):
    score = critic(real(64)).mean() - critic(fake(64)).mean()
    loss = -score
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 75 == 0:
        norm = sum(p.detach().square().sum() for p in critic.parameters()).sqrt()
        print(f"step {step} distance {score.item():.4g} weight norm {norm:.3f}")
