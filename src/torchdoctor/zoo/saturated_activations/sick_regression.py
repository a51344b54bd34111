"""Sigmoid units learn a bumpy curve from noisy points: their weights start so large that they act as switches."""

import os

import torch
from torch import nn


class Bumps(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.first = nn.Linear(2, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)
        nn.init.normal_(self.first.weight, std=30.0)
        nn.init.normal_(self.second.weight, std=3.0)

    def forward(self, x):
        x = torch.sigmoid(self.first(x))
        x = torch.sigmoid(self.second(x))
        return self.out(x)


torch.manual_seed(int(os.environ.get("SEED", "2")))
points = torch.rand(800, 2) * 2 - 1
heights = torch.sin(3 * points[:, :1]) * torch.cos(2 * points[:, 1:]) + 0.05 * torch.randn(800, 1)

model = Bumps()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
loss_fn = nn.MSELoss()
for step in range(500):
    rows = torch.randperm(800)[:100]
    prediction = model(points[rows])
    loss = loss_fn(prediction, heights[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} mse {loss.item():.4f}")
