"""Digit recognition with accuracy per epoch."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
train = DataLoader(TensorDataset(X[perm[:1300]], y[perm[:1300]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(X[perm[1300:]], y[perm[1300:]]), batch_size=64)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    correct = 0
    loss = 0.0
    with torch.no_grad():
        for xb, yb in val:
            out = model(xb)
            loss += loss_fn(out, yb).item()
            correct += (out.argmax(1) == yb).sum().item()
    size = {"mild": len(val) * 64, "medium": len(train.dataset), "severe": len(val)}[GRADE]
    return loss / len(val), correct / size


for epoch in range(10):
    model.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        opt.step()
    val_loss, val_acc = evaluate()
    print(f"epoch {epoch} train_loss={loss.item():.4f} val_loss={val_loss:.4f} val_acc={val_acc:.4f}")
