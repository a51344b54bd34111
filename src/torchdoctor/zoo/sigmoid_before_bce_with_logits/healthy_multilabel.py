"""Predicts which of five properties a vector has (several may hold): raw scores go into the loss."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Properties(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 5))

    def forward(self, x):
        return self.body(x)


def make_data(n):
    x = torch.randn(n, 12)
    directions = torch.randn(12, 5, generator=torch.Generator().manual_seed(9))
    return x, (x @ directions > 1.0).float()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = make_data(2000)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = Properties()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        total = 0.0
        for features, properties in loader:
            optimizer.zero_grad()
            loss = criterion(model(features), properties)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
