"""Digits with dropout."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
P = {"mild": 0.6, "medium": 0.85, "severe": 0.95}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
tr, va = perm[:1400], perm[1400:]
loader = DataLoader(TensorDataset(X[tr], y[tr]), batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Linear(64, 64), nn.ReLU(), nn.Dropout(P), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(P), nn.Linear(64, 10)
)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
ce = nn.CrossEntropyLoss()
for epoch in range(15):
    model.train()
    total = 0.0
    for xb, yb in loader:
        opt.zero_grad()
        loss = ce(model(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() * len(xb)
    model.eval()
    with torch.no_grad():
        out = model(X[va])
        acc = (out.argmax(1) == y[va]).float().mean()
        print(f"epoch {epoch} train {total / 1400:.3f} val {ce(out, y[va]):.3f} acc {acc:.3f}")
