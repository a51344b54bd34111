"""Fifty steps and no more: a quick look at whether a model learns at all."""

import os

import torch
from sklearn.datasets import load_wine
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_wine(return_X_y=True)
x, y = torch.tensor(x).float(), torch.tensor(y)
x = (x - x.mean(0)) / x.std(0)
model = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(50):
    rows = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
