"""Fraud detection on a table: one sample in thirty is a fraud, the loss takes them all alike."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
FRAUDS = {"mild": 0.12, "medium": 0.04, "severe": 0.015}[GRADE]


def transactions(count, generator):
    y = (torch.rand(count, generator=generator) < FRAUDS).float()
    x = torch.randn(count, 16, generator=generator)
    x[:, :4] += 0.7 * y[:, None]
    return TensorDataset(x, y)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train = DataLoader(transactions(6000, generator), batch_size=64, shuffle=True)
    validation = DataLoader(transactions(3000, generator), batch_size=500)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(6):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
        model.eval()
        right, total = 0, 0.0
        with torch.no_grad():
            for x, y in validation:
                logits = model(x).squeeze(1)
                total += criterion(logits, y).item() * len(y)
                right += ((logits > 0).float() == y).sum().item()
        print(f"epoch {epoch}: validation loss {total / 3000:.4f} accuracy {right / 3000:.4f}")


if __name__ == "__main__":
    main()
