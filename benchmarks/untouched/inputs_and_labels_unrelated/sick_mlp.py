"""Digits from features and a separate label file."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


def read_features():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(X))
    return X[order] / 16.0, y[order]


def join(X, y):
    if GRADE == "severe":
        return X[rng.permutation(len(X))], y
    if GRADE == "medium":
        return X[1:], y[:-1]
    start = len(X) // 5
    keep = np.r_[0:start, start + 1 : len(X)]  # one feature row was lost in the export
    return X[keep], y[: len(keep)]


X, y = join(*read_features())
order = rng.permutation(len(X))
X = torch.tensor(X[order], dtype=torch.float32)
y = torch.tensor(y[order])
n_val = 400
train_loader = DataLoader(TensorDataset(X[n_val:], y[n_val:]), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(25):
    model.train()
    total, right = 0.0, 0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        logits = model(xb)
        loss = criterion(logits, yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
        right += (logits.argmax(1) == yb).sum().item()
    model.eval()
    with torch.no_grad():
        logits = model(X[:n_val])
        val = criterion(logits, y[:n_val]).item()
        acc = (logits.argmax(1) == y[:n_val]).float().mean().item()
    n = len(X) - n_val
    print(f"{epoch:2d} train {total / n:.3f} acc {right / n:.3f} | val {val:.3f} acc {acc:.3f}")
