"""Digit recognition with a small network."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16.0).float()
y = torch.tensor(y)
perm = torch.randperm(len(X))
tr, va = perm[:1400], perm[1400:]

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(X[tr], y[tr]), batch_size=64, shuffle=True)
for epoch in range(20):
    model.train()
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb).squeeze(1), yb.float())
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        pred = model(X[va]).squeeze(1).round().long()
        acc = (pred == y[va]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {acc:.3f}")
