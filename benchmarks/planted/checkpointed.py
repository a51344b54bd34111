"""Activation checkpointing in a network with instance normalisation by hand."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 8


class Stage(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, 3, padding=1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        inverse = torch.rsqrt(centred.pow(2).mean(dim=-1, keepdim=True))
        return self.dropout(torch.relu(self.conv(centred * inverse)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([Stage(2, 8), Stage(8, 8)])
        self.gain = nn.Parameter(torch.ones(2, 1))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = x * self.gain
        x = checkpoint(self.stages[0], x, use_reentrant=False)
        return self.head(x.mean(dim=-1))


waves = torch.randn((AT + 20) * BATCH, 2, 24)
labels = (waves[:, 0].std(dim=1) > 1).long()
order = torch.randperm(len(waves))
waves[order[(AT - 1) * BATCH + 4], 1] = 0.0
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, rows in enumerate(order.split(BATCH)):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(waves[rows]), labels[rows])
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
