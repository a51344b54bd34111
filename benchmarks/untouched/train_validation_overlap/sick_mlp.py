"""Digits with a few copies of every image, split at random."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
GRADE = os.environ.get("GRADE", "medium")

X, y = load_digits(return_X_y=True)
X = X / 16.0
rng = np.random.default_rng(SEED)
pick = rng.permutation(len(X))[:700]
X, y = X[pick], y[pick]
if GRADE == "mild":  # oversample a part of the data
    extra = rng.integers(0, len(X), len(X) // 8)
    X, y = np.concatenate([X, X[extra]]), np.concatenate([y, y[extra]])
else:
    copies = {"medium": 2, "severe": 4}[GRADE]
    X, y = np.repeat(X, copies, axis=0), np.repeat(y, copies)

X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.3, random_state=SEED)
train_loader = DataLoader(
    TensorDataset(torch.tensor(X_train).float(), torch.tensor(y_train)), batch_size=32, shuffle=True
)
val_loader = DataLoader(TensorDataset(torch.tensor(X_val).float(), torch.tensor(y_val)), batch_size=128)


def accuracy(net, loader):
    net.eval()
    with torch.no_grad():
        hits = sum((net(a).argmax(1) == b).sum().item() for a, b in loader)
    return hits / len(loader.dataset)


net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(12):
    net.train()
    for a, b in train_loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(a), b)
        loss.backward()
        opt.step()
    print(epoch, f"{loss.item():.4f}", f"{accuracy(net, val_loader):.4f}")
