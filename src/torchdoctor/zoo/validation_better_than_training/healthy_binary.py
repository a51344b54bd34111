"""Two classes that overlap, validated on samples drawn at random."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make(count=1600, features=12):
    x = torch.randn(count, features)
    score = x @ torch.randn(features) / features**0.5
    y = (torch.rand(count) < torch.sigmoid(3 * score)).float()
    return x, y, torch.randperm(count)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y, order = make()
    train, val = order[:1200], order[1200:]
    train_loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=32, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[val], y[val]), batch_size=200)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(10):
        model.train()
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs).squeeze(1), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [criterion(model(inputs).squeeze(1), labels).item() for inputs, labels in val_loader]
        print(f"epoch {epoch}: training {loss.item():.3f}, validation {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
