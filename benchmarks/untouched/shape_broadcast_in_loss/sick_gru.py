"""A GRU that sums up a short series, with a smooth L1 loss."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class SumNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        _, h = self.gru(x)
        return self.fc(h[-1]).squeeze(-1)


def make(n):
    x = torch.rand(n, 10, 1) - 0.5
    return x, x.sum(dim=1)


net = SumNet()
optim = torch.optim.Adam(net.parameters(), lr=5e-3)
for step in range(400):
    x, y = make(32)
    optim.zero_grad()
    loss = F.smooth_l1_loss(net(x), y)
    loss.backward()
    optim.step()
    if step % 50 == 49:
        print(f"step {step + 1}: {loss.item():.4f}")
