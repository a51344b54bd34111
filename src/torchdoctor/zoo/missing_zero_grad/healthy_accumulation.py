"""Gradient accumulation over four small batches on a regression: what was accumulated is cleared after each update."""

import os

import torch
from torch import nn

ACCUMULATE = 4


class Surface(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 64)
        self.outer = nn.Linear(64, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))).squeeze(1)


def batches(n, size=16):
    for _ in range(n):
        x = torch.rand(size, 3) * 4 - 2
        yield x, torch.sin(x[:, 0]) * x[:, 1] + 0.3 * x[:, 2]


torch.manual_seed(int(os.environ.get("SEED", "6")))
model = Surface()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for i, (x, y) in enumerate(batches(1200), start=1):
    loss = nn.functional.smooth_l1_loss(model(x), y) / ACCUMULATE
    loss.backward()
    if i % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()  # start the next four from nothing
    if i % 200 == 0:
        print(f"batch {i}: loss {ACCUMULATE * loss.item():.4f}")
