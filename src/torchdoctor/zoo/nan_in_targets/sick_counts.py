"""Visitor counts on a logarithmic scale from weather and calendar, days without visitors included."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Visitors(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 24), nn.ReLU())
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def make_data():
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(3000, 10, generator=generator)
    rate = torch.exp(1.8 + 0.7 * x[:, 0] - 0.5 * x[:, 1] * x[:, 2].sign())
    visitors = torch.poisson(rate, generator=generator)
    target = torch.log(visitors)
    return random_split(TensorDataset(x, target), [2500, 500], generator=generator)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "11")))
    train, valid = make_data()
    model = Visitors(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for epoch in range(8):
        model.train()
        for x, target in DataLoader(train, batch_size=64, shuffle=True):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.l1_loss(model(x), target)
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            errors = [nn.functional.l1_loss(model(x), t).item() for x, t in DataLoader(valid, batch_size=500)]
        print(f"{epoch}\t{loss.item():.3f}\t{errors[0]:.3f}")


main()
