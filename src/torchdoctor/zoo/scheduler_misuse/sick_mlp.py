"""Classifies digits; the rate's exponential decay, meant for epochs, is stepped in the inner loop."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
GAMMA = {"mild": 0.98, "medium": 0.9, "severe": 0.7}[GRADE]


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=GAMMA)
    for epoch in range(10):
        model.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            output = model(x[1400:])
            accuracy = (output.argmax(1) == y[1400:]).float().mean()
            validation = criterion(output, y[1400:])
        print(f"epoch {epoch}: {loss.item():.3f}, validation {validation.item():.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
