"""Breast cancer classification from a table with sensor readings."""

import os

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

MISSING = {"mild": 1, "medium": 40, "severe": 900}[GRADE]

X, y = load_breast_cancer(return_X_y=True)
# the second lab did not take every measurement; the export leaves these cells empty
rows = rng.integers(0, len(X), MISSING)
cols = rng.integers(0, X.shape[1], MISSING)
X[rows, cols] = np.nan
X = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)

X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.25, stratify=y, random_state=SEED)
train = TensorDataset(torch.tensor(X_train, dtype=torch.float32), torch.tensor(y_train))
val = TensorDataset(torch.tensor(X_val, dtype=torch.float32), torch.tensor(y_val))
train_loader = DataLoader(train, batch_size=32, shuffle=True)
val_loader = DataLoader(val, batch_size=64)

model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(20):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for xb, yb in val_loader:
            correct += (model(xb).argmax(1) == yb).sum().item()
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {correct / len(val):.3f}")
