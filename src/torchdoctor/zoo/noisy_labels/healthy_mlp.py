"""Digits with their own labels, on blurred images that are hard to tell apart."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def load():
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x))
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)[order]
    y = torch.tensor(y)[order]
    x = x + 0.8 * torch.randn(x.shape)
    return x[:1300], y[:1300], x[1300:], y[1300:]


def main():
    torch.manual_seed(SEED)
    x, y, x_val, y_val = load()
    train = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    validation = DataLoader(TensorDataset(x_val, y_val), batch_size=250)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(8):
        model.train()
        for inputs, labels in train:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total, right = 0.0, 0
            for inputs, labels in validation:
                output = model(inputs)
                total += criterion(output, labels).item() * len(labels)
                right += (output.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: validation loss {total / len(x_val):.3f}, accuracy {right / len(x_val):.3f}")


if __name__ == "__main__":
    main()
