"""Digits with all weights in bfloat16."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 3e-4, "medium": 1e-4, "severe": 5e-5}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).to(torch.bfloat16), torch.tensor(y)
loader = DataLoader(TensorDataset(X, y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(torch.bfloat16)
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
for epoch in range(20):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xb).float(), yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
    if epoch % 2 == 0:
        print(f"epoch {epoch} loss {total / len(X):.4f}")
