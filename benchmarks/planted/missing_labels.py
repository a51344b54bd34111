"""Regression of a yield from field conditions."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 24

fields = torch.randn((AT + 20) * BATCH, 6)
yields = fields @ torch.randn(6, 1) + 0.2 * torch.randn(len(fields), 1)
order = torch.randperm(len(fields))
yields[order[(AT - 1) * BATCH + 6]] = float("nan")

model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
criterion = nn.MSELoss()
loader = DataLoader(TensorDataset(fields, yields), batch_size=BATCH, sampler=order.tolist())
for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
