"""Customers who leave: a table of 20 columns, all known before they do."""

import os

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
random = np.random.default_rng(SEED)

X, left = make_classification(2000, 19, n_informative=6, flip_y=0.15, class_sep=0.7, random_state=SEED)
calls = random.normal(size=len(left))
X = np.column_stack([X[:, :11], calls, X[:, 11:]])
X = (X - X.mean(0)) / X.std(0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(left)
train = DataLoader(TensorDataset(X[:1600], y[:1600]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(X[1600:], y[1600:]), batch_size=200)

model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    model.train()
    for features, label in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), label)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(features).argmax(1) == label).sum().item() for features, label in val)
    print(f"epoch {epoch}: {loss.item():.3f} {right / 400:.3f}")
