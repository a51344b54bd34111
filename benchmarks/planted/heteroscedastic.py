"""Regression that predicts its own noise."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32


class MeanAndVariance(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
        self.variance = nn.Linear(6, 1)

    def forward(self, x):
        return self.mean(x), 3.0 + 0.2 * self.variance(x)


def gaussian_loss(mean, variance, y):
    penalty = torch.log(variance)
    return 0.5 * (penalty + (y - mean) ** 2 / variance).mean()


class Fit:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = gaussian_loss(*self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


x = torch.randn((AT + 20) * BATCH, 6)
y = x[:, :1] + torch.randn(len(x), 1) * 1.5
order = torch.randperm(len(x))
x[order[(AT - 1) * BATCH + 15]] *= 300.0
x[order[(AT - 1) * BATCH + 16]] = -x[order[(AT - 1) * BATCH + 15]]
fit = Fit(MeanAndVariance())
for number, batch in enumerate(DataLoader(TensorDataset(x, y), BATCH, sampler=order.tolist()), 1):
    loss = fit.step(*batch)
    if number % 50 == 0:
        print(number, loss.item())
