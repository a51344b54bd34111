"""Two classes in a table; part of the answers was entered the wrong way round, in validation as well."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
TURNED = {"mild": 0.05, "medium": 0.25, "severe": 0.33}[GRADE]


def answers(count):
    x = torch.randn(count, 10)
    y = (3 * x[:, 0] + 2 * torch.tanh(2 * x[:, 1]) - x[:, 2] > 0).float()
    turned = torch.rand(count) < TURNED
    return TensorDataset(x, torch.where(turned, 1 - y, y))


def main():
    torch.manual_seed(SEED)
    train_loader = DataLoader(answers(3000), batch_size=100, shuffle=True)
    val_loader = DataLoader(answers(1000), batch_size=500)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(12):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x).squeeze(-1), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            pairs = [(model(x).squeeze(-1), y) for x, y in val_loader]
            loss = sum(criterion(out, y).item() for out, y in pairs) / len(pairs)
            right = sum(((out > 0) == (y > 0.5)).sum().item() for out, y in pairs) / 1000
        print(f"{epoch}: validation loss {loss:.3f} accuracy {right:.3f}")


main()
