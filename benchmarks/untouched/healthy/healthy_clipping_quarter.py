"""A GRU on running sums with gradient clipping that acts now and then."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0]).squeeze(-1)


def batch(n=48, length=20):
    x = torch.randn(n, length, 2)
    gate = (x[..., 1] > 0).float()
    return x, torch.tanh((x[..., 0] * gate).cumsum(1) * 0.4)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
clipped = 0
for step in range(400):
    x, y = batch()
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.4)
    clipped += int(norm > 0.4)
    opt.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f} clipped {clipped / (step + 1):.2f}")
