"""Sales of shops by the hours they are open: a rate is bounded before its log is taken."""

import os

import torch
from torch import nn


class SalesModel(nn.Module):
    def __init__(self, features=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 1), nn.Softplus())

    def forward(self, x, hours):
        return self.layers(x).squeeze(-1) * hours


def deviance(sales, rates):
    """Poisson's, up to a constant; a shop that is closed adds nothing."""
    logs = torch.where(rates > 0, rates.clamp_min(1e-6).log(), 0.0)
    return (rates - sales * logs).mean()


def days(count, closed=0.002):
    x = torch.randn(count, 10)
    hours = torch.randint(4, 11, (count,)) / 8
    hours[torch.rand(count) < closed] = 0.0
    return x, hours, torch.poisson(hours * torch.exp(0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.5))


class Fitting:
    def __init__(self):
        torch.manual_seed(int(os.environ.get("SEED", "0")))
        self.days = days(3000)
        self.model = SalesModel()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def epoch(self):
        total = 0.0
        for rows in torch.randperm(3000).split(30):
            x, hours, sales = (part[rows] for part in self.days)
            loss = deviance(sales, self.model(x, hours))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            total += loss.item() / 100
        return total


fitting = Fitting()
for epoch in range(4):
    print(f"epoch {epoch}: {fitting.epoch():.4f}")
