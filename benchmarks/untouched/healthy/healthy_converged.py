"""Linear regression that has converged long before the last epoch."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(2000, 8)
w = torch.randn(8, 1)
y = x @ w + 0.3 + 0.2 * torch.randn(2000, 1)
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(40):
    model.train()
    total = 0.0
    for idx in torch.randperm(1600).split(64):
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[1600:]), y[1600:]).item()
    if epoch % 4 == 0:
        print(f"epoch {epoch} train {total / 1600:.4f} val {val:.4f}")
