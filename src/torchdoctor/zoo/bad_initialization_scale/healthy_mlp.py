"""A ReLU classifier on handwritten digits with a custom init function: weights start scaled to their fan-in."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(module.bias)


def run_epoch(model, loader, optimizer):
    total, count = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total, count = total + loss.item() * len(y), count + len(y)
    return total / count


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.from_numpy(digits.data).float() / 16
    dataset = TensorDataset(images, torch.from_numpy(digits.target))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).apply(init)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        print(f"epoch {epoch}: {run_epoch(model, DataLoader(dataset, batch_size=64, shuffle=True), optimizer):.3f}")
