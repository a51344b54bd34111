"""Digits with a tuned Adam."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")
OPTIONS = {
    "mild": {"betas": (0.9, 0.5)},
    "medium": {"betas": (0.999, 0.9)},
    "severe": {"betas": (0.9, 0.999), "eps": 10.0},
}[GRADE]

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, **OPTIONS)
for epoch in range(15):
    total = 0.0
    for idx in torch.randperm(len(X)).split(64):
        loss = nn.functional.cross_entropy(model(X[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    print(f"epoch {epoch} loss {total / len(X):.4f}")
