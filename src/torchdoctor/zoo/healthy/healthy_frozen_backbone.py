"""A new head trained on a frozen, pretrained body, at a small rate and from a loss that is already low."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x))


def fit(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    model = Classifier()
    first = DataLoader(TensorDataset(x[:900], y[:900]), batch_size=32, shuffle=True)
    fit(model, first, torch.optim.Adam(model.parameters(), lr=2e-3), epochs=4)

    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
    model.body.eval()
    second = DataLoader(TensorDataset(x[900:], y[900:]), batch_size=32, shuffle=True)
    fit(model, second, torch.optim.Adam(model.head.parameters(), lr=1e-3), epochs=4)


main()
