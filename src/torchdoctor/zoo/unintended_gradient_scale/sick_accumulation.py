"""Digits in small batches whose gradients are added up before each update."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
ACCUMULATE = {"mild": 4, "medium": 16, "severe": 40}[GRADE]


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def run_epoch(self, loader):
        total = 0.0
        self.optimizer.zero_grad()
        for i, (x, y) in enumerate(loader, start=1):
            loss = self.criterion(self.model(x), y)
            loss.backward()
            total += loss.item()
            if i % ACCUMULATE == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return total / len(loader)

    @torch.no_grad()
    def accuracy(self, x, y):
        return (self.model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    layers = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    trainer = Trainer(nn.Sequential(*layers), lr=0.1)
    loader = DataLoader(TensorDataset(x[:1440], y[:1440]), batch_size=4, shuffle=True)
    for epoch in range(5):
        loss = trainer.run_epoch(loader)
        print(f"epoch {epoch}: {loss:.3f}, accuracy {trainer.accuracy(x[1440:], y[1440:]):.3f}")
