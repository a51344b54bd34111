"""Digits with a quick validation check."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(int(os.environ.get("SEED", "0")))
N_VAL = {"mild": 40, "medium": 15, "severe": 6}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X = X / 16.0
data = TensorDataset(torch.tensor(X).float() + 0.35 * torch.randn(len(X), 64), torch.tensor(y))
train_set, val_set = random_split(data, [len(data) - N_VAL, N_VAL])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=64)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
best = 0.0
for epoch in range(12):
    model.train()
    total = 0.0
    for xb, yb in train_loader:
        opt.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() * len(yb)
    model.eval()
    hits = 0
    with torch.no_grad():
        for xb, yb in val_loader:
            hits += (model(xb).argmax(1) == yb).sum().item()
    acc = hits / N_VAL
    best = max(best, acc)
    print(f"epoch {epoch} train {total / len(train_set):.4f} val acc {acc:.3f} best {best:.3f}")
