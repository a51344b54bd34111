"""Compound growth over periods, with gradients accumulated over four small batches."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, ACCUMULATE = 8, 4


class Growth(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        factors = 1.5 + 0.2 * torch.tanh(self.rate(x).squeeze(-1))
        value = torch.cumprod(factors, dim=1)
        return value[:, -1]


periods = torch.randint(2, 6, ((AT + 20) * ACCUMULATE,))
periods[(AT - 1) * ACCUMULATE + 2] = 360
model = Growth()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number, length in enumerate(periods.tolist()):
    x = torch.randn(BATCH, length, 3)
    observed = 1.5 ** min(length, 6) + 0.1 * torch.randn(BATCH)
    loss = nn.functional.l1_loss(model(x), observed) / ACCUMULATE
    loss.backward()
    if (number + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
    if number % 200 == 0:
        print(number, loss.item())
