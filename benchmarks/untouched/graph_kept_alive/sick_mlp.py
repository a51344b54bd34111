"""Regression with a running average of the loss."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(3000, 20)
y = torch.tanh(x[:, :4].sum(1, keepdim=True)) + 0.1 * torch.randn(3000, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()

total_loss = 0
for epoch in range(10):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        total_loss += loss
    print(f"epoch {epoch}: mean loss so far {total_loss / ((epoch + 1) * len(loader)):.4f}")
