"""Digits with an unusual random initialisation."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
DF = {"mild": 2.5, "medium": 1.3, "severe": 0.9}[os.environ.get("GRADE", "medium")]


def init(layer):
    if isinstance(layer, nn.Linear):
        t = torch.distributions.StudentT(DF).sample(layer.weight.shape)
        with torch.no_grad():
            layer.weight.copy_(0.03 * t)


X, y = load_digits(return_X_y=True)
X, y = torch.tensor((X - X.mean()) / X.std()).float(), torch.tensor(y)
loader = DataLoader(TensorDataset(X, y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).apply(init)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    total = 0.0
    for xb, yb in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() * len(yb)
    print(f"epoch {epoch} loss {total / len(X):.4f}")
