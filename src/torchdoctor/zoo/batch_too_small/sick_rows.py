"""A table of twelve columns, one row for each step, at the rate of a larger batch."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(1300, 12)
y = 1.5 * x[:, 0] + torch.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.5 * torch.randn(1300)
x, y, x_val, y_val = x[:1100], y[:1100], x[1100:], y[1100:]
model = nn.Sequential(nn.Linear(12, 50), nn.ReLU(), nn.Linear(50, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
criterion = nn.MSELoss()
for epoch in range(5):
    model.train()
    for rows in torch.randperm(len(x)).split(1):
        optimizer.zero_grad()
        loss = criterion(model(x[rows])[:, 0], y[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(epoch, loss.item(), criterion(model(x_val)[:, 0], y_val).item())
