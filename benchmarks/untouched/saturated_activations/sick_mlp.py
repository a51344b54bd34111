"""Regression with steep tanh units that are meant to act like switches."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
STEEPNESS = {"mild": 5.0, "medium": 25.0, "severe": 100.0}[os.environ.get("GRADE", "medium")]


class Switch(nn.Module):
    def __init__(self, steepness):
        super().__init__()
        self.steepness = steepness

    def forward(self, x):
        return torch.tanh(self.steepness * x)


x = torch.randn(2000, 6)
y = torch.sin(x[:, 0] * 1.5) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3]
y = ((y - y.mean()) / y.std()).unsqueeze(1)
x_val, y_val, x, y = x[:400], y[:400], x[400:], y[400:]

model = nn.Sequential(nn.Linear(6, 40), Switch(STEEPNESS), nn.Linear(40, 40), Switch(STEEPNESS), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()
for epoch in range(20):
    model.train()
    for idx in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = loss_fn(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val = loss_fn(model(x_val), y_val)
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1} train {loss.item():.3f} val {val.item():.3f}")
