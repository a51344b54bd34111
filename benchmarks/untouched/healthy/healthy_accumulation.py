"""Digits with gradients accumulated over four micro-batches."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
ACCUMULATE = 4

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
train = DataLoader(TensorDataset(X[perm[:1408]], y[perm[:1408]]), batch_size=16, shuffle=True)
val = DataLoader(TensorDataset(X[perm[1408:]], y[perm[1408:]]), batch_size=200)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    model.train()
    total = 0.0
    optimizer.zero_grad()
    for i, (x, t) in enumerate(train):
        loss = criterion(model(x), t)
        (loss / ACCUMULATE).backward()
        total += loss.item() * len(t)
        if (i + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        acc = sum((model(x).argmax(1) == t).sum().item() for x, t in val) / 389
    print(f"epoch {epoch} loss {total / 1408:.4f} val acc {acc:.3f}")
