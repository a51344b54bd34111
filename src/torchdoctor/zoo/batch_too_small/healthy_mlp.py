"""A perceptron on digits in batches of 32."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32
RATE = 0.05


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    x = x + 0.7 * torch.randn(x.shape)
    loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for epoch in range(12):
        model.train()
        total = 0.0
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            val_loss = nn.functional.cross_entropy(model(x[1400:]), y[1400:]).item()
        print(f"epoch {epoch}: {total / len(loader):.3f}, validation {val_loss:.3f}")


if __name__ == "__main__":
    main()
