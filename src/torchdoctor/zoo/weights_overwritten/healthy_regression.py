"""Regression scored with averaged weights, which are swapped in for the evaluation only."""

import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Average:
    """An exponential moving average of a module's parameters."""

    def __init__(self, module, decay):
        self.module = module
        self.decay = decay
        self.shadow = [p.detach().clone() for p in module.parameters()]
        self.backup = []

    @torch.no_grad()
    def update(self):
        for mean, value in zip(self.shadow, self.module.parameters(), strict=True):
            mean.lerp_(value, 1 - self.decay)

    @torch.no_grad()
    def apply(self):
        self.backup = [p.detach().clone() for p in self.module.parameters()]
        for mean, value in zip(self.shadow, self.module.parameters(), strict=True):
            value.copy_(mean)

    @torch.no_grad()
    def restore(self):
        for kept, value in zip(self.backup, self.module.parameters(), strict=True):
            value.copy_(kept)


def evaluate(model, loader, average):
    average.apply()
    model.eval()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(model(x), y).item() * len(x) for x, y in loader)
    average.restore()
    return total / len(loader.dataset)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_friedman1(1400, 10, noise=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32).unsqueeze(1)
    train_loader = DataLoader(TensorDataset(x[:1100], y[:1100]), batch_size=50, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[1100:], y[1100:]), batch_size=150)
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    average = Average(model, decay=0.98)
    for epoch in range(10):
        model.train()
        for xb, yb in train_loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update()
        print(f"epoch {epoch}: train {loss.item():.3f}, validation {evaluate(model, val_loader, average):.3f}")


main()
