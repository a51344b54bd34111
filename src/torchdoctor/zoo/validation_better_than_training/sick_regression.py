"""Measurements of two instruments: training has the rough one, validation the fine one."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(1500, 8)
fine = torch.rand(1500, 1) < 0.25
y = torch.tanh(x @ torch.randn(8, 1) / 2) + torch.where(fine, 0.1, 0.7) * torch.randn(1500, 1)
val = fine.flatten().nonzero().flatten()
train = (~fine).flatten().nonzero().flatten()

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-3)
for epoch in range(10):
    for rows in train[torch.randperm(len(train))].split(32):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.mse_loss(model(x[val]), y[val])
    model.train()
    print(epoch, f"{loss.item():.3f}", f"{val_loss.item():.3f}")
