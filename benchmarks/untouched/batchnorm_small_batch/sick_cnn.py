"""Digit CNN with batch norm, trained within a small memory budget."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = {"mild": 4, "medium": 2, "severe": 2}[os.environ.get("GRADE", "medium")]

digits = load_digits()
x = torch.tensor(digits.images).float().unsqueeze(1) / 16
y = torch.tensor(digits.target)
perm = torch.randperm(len(x))
train = TensorDataset(x[perm[:800]], y[perm[:800]])
val = TensorDataset(x[perm[1200:]], y[perm[1200:]])


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(
    block(1, 16),
    block(16, 32),
    nn.Flatten(),
    nn.Linear(128, 32, bias=False),
    nn.BatchNorm1d(32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
for epoch in range(4):
    model.train()
    total = 0.0
    for xb, yb in DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        parts = [
            (nn.functional.cross_entropy(model(a), b).item(), (model(a).argmax(1) == b).sum().item(), len(b))
            for a, b in DataLoader(val, batch_size=200)
        ]
    vl = sum(p[0] * p[2] for p in parts) / len(val)
    print(
        f"epoch {epoch} train {total / (800 // BATCH):.4f} val {vl:.4f} acc {sum(p[1] for p in parts) / len(val):.3f}"
    )
