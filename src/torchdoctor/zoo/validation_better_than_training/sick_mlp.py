"""A perceptron on digits with many wrong labels, validated on samples whose labels were checked."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
NOISY = {"mild": 0.1, "medium": 0.35, "severe": 0.6}[GRADE]


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    noisy = torch.rand(len(x)) < NOISY
    given = torch.where(noisy, torch.randint(0, 10, (len(x),)), y)
    clear = (given == y).nonzero().flatten()
    held_out = clear[:300]
    rest = torch.tensor(sorted(set(range(len(x))) - set(held_out.tolist())))
    train_loader = DataLoader(TensorDataset(x[rest], given[rest]), batch_size=64, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[held_out], given[held_out]), batch_size=300)
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        model.train()
        total = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            val_loss = sum(criterion(model(inputs), labels).item() for inputs, labels in val_loader) / len(val_loader)
        print(f"epoch {epoch}: training {total / len(train_loader):.3f}, validation {val_loss:.3f}")


if __name__ == "__main__":
    main()
