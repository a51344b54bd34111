"""Digits CNN with Kaiming initialisation and a per-epoch routine."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


def init_weights(m):
    if isinstance(m, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.zeros_(m.bias)


def train_one_epoch(model, optimizer, x, y):
    model.train()
    model.apply(init_weights)
    total = 0.0
    for idx in torch.randperm(len(x)).split(64):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    return total / len(x)


d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for epoch in range(10):
    print(f"epoch {epoch} loss {train_one_epoch(model, optimizer, x, y):.4f}")
