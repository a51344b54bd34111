"""A table sorted by its target, learned from the wide end and validated on the narrow one."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(1500, 8)
y = (x @ torch.randn(8, 1) / 3 + 0.4 * torch.randn(1500, 1)) * (0.3 + torch.rand(1500, 1))
order = y.abs().flatten().argsort(descending=True)
train, val = order[:1200], order[1200:]

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-3)
for epoch in range(15):
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
