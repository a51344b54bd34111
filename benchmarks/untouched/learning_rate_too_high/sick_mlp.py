"""Digits with plain SGD."""

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default={"mild": 2.0, "medium": 8.0, "severe": 100.0}[GRADE])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
X = torch.tensor((X - X.mean()) / X.std()).float()
loader = DataLoader(TensorDataset(X, torch.tensor(y)), batch_size=args.batch_size, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    losses = []
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} first {losses[0]:.3f} last {losses[-1]:.3f} max {max(losses):.3f}")
