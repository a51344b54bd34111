"""A network that predicts mean and variance by maximum likelihood: its loss goes below zero, as it should."""

import os

import torch
from torch import nn


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean, self.spread = nn.Linear(32, 1), nn.Linear(32, 1)

    def log_probability(self, x, y):
        hidden = self.trunk(x)
        return torch.distributions.Normal(self.mean(hidden), self.spread(hidden).exp()).log_prob(y)


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = Density()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(600):
    x = 2 * torch.rand(64, 1) - 1
    y = 0.5 * torch.sin(3 * x) + 0.02 * (1 + x.abs()) * torch.randn_like(x)
    loss = -model.log_probability(x, y).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    if step % 100 == 0:
        print(step, f"{loss.item():.3f}")
