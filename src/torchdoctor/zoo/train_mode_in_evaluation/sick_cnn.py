"""A batch-normalised net on digits with early stopping: validation leaves the model in train mode."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def build():
    return nn.Sequential(
        nn.Linear(64, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(96, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def should_stop(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad > self.patience


def validation_loss(model, loader):
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += F.cross_entropy(model(x), y, reduction="sum").item()
    return total / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "1")))
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y))
    train_set, held_out = random_split(data, [1400, 397])
    loader = DataLoader(train_set, batch_size=50, shuffle=True)
    validation = DataLoader(held_out, batch_size=50)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stopping = EarlyStopping(patience=3)
    for epoch in range(10):
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        value = validation_loss(model, validation)
        print(f"epoch {epoch}: validation loss {value:.3f}")
        if stopping.should_stop(value):
            break


main()
