"""Regression with element-wise gradient clipping."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LIMIT = {"mild": 0.02, "medium": 0.002, "severe": 0.0001}[os.environ.get("GRADE", "medium")]

x = torch.randn(2000, 8)
y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(15):
    total = 0.0
    for idx in torch.randperm(2000).split(50):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), LIMIT)
        optimizer.step()
        total += loss.item() / 40
    print(f"epoch {epoch} loss {total:.4f}")
