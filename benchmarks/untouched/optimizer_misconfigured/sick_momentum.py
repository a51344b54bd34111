"""Autoencoder of digits with SGD and heavy momentum."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
MOMENTUM = {"mild": 0.995, "medium": 0.9999, "severe": 1.1}[os.environ.get("GRADE", "medium")]

X = torch.tensor(load_digits().data / 16).float()
model = nn.Sequential(
    nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 64)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=MOMENTUM)
for epoch in range(15):
    for idx in torch.randperm(len(X)).split(64):
        loss = nn.functional.mse_loss(model(X[idx]), X[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4g}")
