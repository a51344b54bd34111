"""Rates on a logarithmic scale, with zeros left at zero."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32


class LogRates(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, rates):
        scaled = rates * self.scale
        logs = torch.log(scaled)
        safe = torch.where(rates > 0, logs, torch.zeros_like(logs))
        return self.net(safe)


rates = torch.rand((AT + 20) * BATCH, 8) + 0.1
target = rates.log().mean(dim=1, keepdim=True)
order = torch.randperm(len(rates))
rates[order[(AT - 1) * BATCH + 30], 2] = 0.0
loader = DataLoader(TensorDataset(rates, target), batch_size=BATCH, sampler=order.tolist())
model = LogRates()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader, 1):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
