"""Digits with an MLP."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
loader = DataLoader(TensorDataset(torch.tensor(X / 16).float(), torch.tensor(y)), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def train_step(x, y):
    model.train()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


for epoch in range(10):
    losses = [train_step(x, y) for x, y in loader]
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}")
