"""Digits with a second copy of the model that serves evaluation."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
train = DataLoader(TensorDataset(X[perm[:1300]], y[perm[:1300]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(X[perm[1300:]], y[perm[1300:]]), batch_size=128)

model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
eval_model = copy.deepcopy(model).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()


def evaluate():
    loss = hits = n = 0
    with torch.no_grad():
        for xb, yb in val:
            out = eval_model(xb)
            loss += criterion(out, yb).item() * len(yb)
            hits += (out.argmax(1) == yb).sum().item()
            n += len(yb)
    return loss / n, hits / n


for epoch in range(12):
    total = 0.0
    for xb, yb in train:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(yb)
    val_loss, val_acc = evaluate()
    print(f"epoch {epoch} train {total / 1300:.4f} val {val_loss:.4f} acc {val_acc:.4f}")
