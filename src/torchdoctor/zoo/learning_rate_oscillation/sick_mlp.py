"""A perceptron on digits that are blurred anew in every batch, at a constant rate that never lets it settle."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
RATE = {"mild": 0.05, "medium": 0.12, "severe": 0.16}[GRADE]


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    train_loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(14):
        model.train()
        total = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs + 0.9 * torch.randn_like(inputs)), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            val_loss = criterion(model(x[1400:]), y[1400:]).item()
        print(f"epoch {epoch}: {total / len(train_loader):.4f}, validation {val_loss:.4f}")


if __name__ == "__main__":
    main()
