"""Fit the growth rate of a population model by rolling it out."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Population(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x, start, years):
        rate = 3.85 + 0.1 * torch.sigmoid(self.rate(x))
        size = start
        for _ in range(years):
            size = rate * size * (1 - size)
        return size


horizons = [4] * (AT + 20)
horizons[AT - 1] = 500
model = Population()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, years in enumerate(horizons):
    x = torch.randn(BATCH, 3)
    start = torch.rand(BATCH, 1) * 0.8 + 0.1
    observed = torch.rand(BATCH, 1)
    loss = (model(x, start, years) - observed).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
