"""Poisson regression of visitor counts with an exponential link."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
SCALE = {"mild": 2.2, "medium": 6.0, "severe": 30.0}[os.environ.get("GRADE", "medium")]

x = torch.randn(2000, 5)
x[:, 0] = x[:, 0].exp() / 1.5  # waiting times, skewed
rate = torch.exp(0.3 * x[:, 1] - 0.2 * x[:, 2] + 0.5)
counts = torch.poisson(rate)

model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(10):
    for idx in torch.randperm(2000).split(50):
        eta = SCALE * model(x[idx]).squeeze(1)
        mean = torch.exp(eta)
        loss = (mean - counts[idx] * eta).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} deviance part {loss.item():.4f}")
