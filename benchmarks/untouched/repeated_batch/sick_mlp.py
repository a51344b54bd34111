"""Digits classifier with batches drawn by hand."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
torch.manual_seed(SEED)

X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16.0, dtype=torch.float32)
y = torch.tensor(y)
perm = torch.randperm(len(X))
train_idx, val_idx = perm[:1300].numpy(), perm[1300:]

SHARDS = {"mild": 10, "medium": 3, "severe": 1}[GRADE]


def get_batch(step, size=64):
    rng = np.random.default_rng(SEED + step % SHARDS)
    pick = rng.choice(train_idx, size, replace=False)
    return X[pick], y[pick]


def evaluate(model):
    model.eval()
    with torch.no_grad():
        logits = model(X[val_idx])
        result = F.cross_entropy(logits, y[val_idx]).item(), (logits.argmax(1) == y[val_idx]).float().mean().item()
    model.train()
    return result


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(600):
    xb, yb = get_batch(step)
    loss = F.cross_entropy(model(xb), yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        val_loss, val_acc = evaluate(model)
        print(f"step {step + 1}: train {loss.item():.4f} val {val_loss:.4f} acc {val_acc:.3f}")
