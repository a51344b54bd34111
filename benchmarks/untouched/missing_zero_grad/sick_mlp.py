"""Breast cancer classification with SGD."""

import os

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


def load():
    X, y = load_breast_cancer(return_X_y=True)
    a, b, ya, yb = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    mean, std = a.mean(0), a.std(0)
    make = lambda u, v: TensorDataset(torch.tensor((u - mean) / std).float(), torch.tensor(v).float())  # noqa: E731
    return make(a, ya), make(b, yb)


train, val = load()
model = nn.Sequential(nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(20):
    model.train()
    total = 0.0
    for x, y in DataLoader(train, batch_size=32, shuffle=True):
        loss = criterion(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    model.eval()
    with torch.no_grad():
        x, y = val.tensors
        out = model(x).squeeze(1)
        print(f"epoch {epoch} train {total / len(train):.4f} val {criterion(out, y):.4f}")
