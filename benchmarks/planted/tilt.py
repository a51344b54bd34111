"""Tilt angle of a platform, from the cosine that a network gives."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Tilt(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 12))
        self.skip = nn.Linear(5, 1)

    def forward(self, x):
        cosine = torch.tanh(self.skip(x).squeeze(1) + 0.1 * self.net(x).mean(dim=1))
        return torch.acos(cosine)


readings = torch.randn((AT + 20) * BATCH, 5)
tilts = torch.acos(torch.tanh(readings[:, 0]))
order = torch.randperm(len(readings))
readings[order[(AT - 1) * BATCH + 14]] *= 1000.0
loader = DataLoader(TensorDataset(readings, tilts), batch_size=BATCH, sampler=order.tolist())
model = Tilt()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader, 1):
    loss = nn.functional.smooth_l1_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
