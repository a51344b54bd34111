"""Digits in a CNN; the training set holds all of the digits alike."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def load():
    random = np.random.default_rng(SEED)
    x, y = load_digits(return_X_y=True)
    order = random.permutation(len(x))
    x, y = x[order].reshape(-1, 1, 8, 8) / 8 - 1, y[order]
    train, val = np.arange(1100), np.arange(1100, len(x))
    return [TensorDataset(torch.tensor(x[i], dtype=torch.float32), torch.tensor(y[i])) for i in (train, val)]


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 10),
        )


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    totals = torch.zeros(3)
    for x, y in loader:
        out = model(x)
        totals += torch.tensor([criterion(out, y) * len(y), (out.argmax(1) == y).sum(), len(y)])
    return (totals[:2] / totals[2]).tolist()


def main():
    torch.manual_seed(SEED)
    train, val = load()
    loader, val_loader = DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=256)
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    for epoch in range(6):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        print(epoch, evaluate(model, val_loader, criterion))


main()
