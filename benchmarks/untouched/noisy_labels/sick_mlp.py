"""Digits with labels from crowd workers."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
WRONG = {"mild": 0.07, "medium": 0.22, "severe": 0.4}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16.0, dtype=torch.float32)
crowd = y.copy()
careless = rng.random(len(y)) < WRONG
crowd[careless] = (y[careless] + rng.integers(1, 10, careless.sum())) % 10
y = torch.tensor(crowd)

perm = torch.randperm(len(X))
train, val = perm[:1350], perm[1350:]
loader = DataLoader(TensorDataset(X[train], y[train]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.CrossEntropyLoss()

for epoch in range(25):
    model.train()
    running = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        optimizer.step()
        running += loss.item() * len(xb)
    model.eval()
    with torch.no_grad():
        logits = model(X[val])
        val_loss = loss_fn(logits, y[val]).item()
        acc = (logits.argmax(1) == y[val]).float().mean().item()
    if epoch % 3 == 0:
        print(f"epoch {epoch:2d} train {running / len(train):.3f} val {val_loss:.3f} acc {acc:.3f}")
