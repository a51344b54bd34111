"""A linear model that has long reached the floor of its problem and goes on training there."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
weights = torch.randn(10, 1)
model = nn.Linear(10, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for step in range(1200):
    x = torch.randn(64, 10)
    y = x @ weights + 0.5 * torch.randn(64, 1)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        print(step, round(loss.item(), 4))
