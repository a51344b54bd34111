"""A GRU classifier of noisy waveforms with gradient clipping."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
MAX_NORM = {"mild": 0.1, "medium": 0.01, "severe": 0.0005}[os.environ.get("GRADE", "medium")]


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        _, h = self.gru(x)
        return self.out(h[-1])


def waves(n):
    k = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 1, 25)
    x = torch.sin(6.283 * (k[:, None] + 1) * t) * (1 + 0.2 * torch.randn(n, 1)) + 0.2 * torch.randn(n, 25)
    return x.unsqueeze(-1), k


model = WaveNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(400):
    x, y = waves(48)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    if step % 50 == 49:
        print(step + 1, f"{loss.item():.4f}")
