"""Signed logarithmic compression as an autograd function of its own."""

import os

import torch
import torch.nn.functional as F
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class SignedLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign() * torch.log1p(x.abs())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        magnitude = x.abs()
        return grad / magnitude


class Compressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(10))
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        compressed = SignedLog.apply(x * self.gain)
        return self.head(compressed)


signals = torch.randn((AT + 20) * BATCH, 10) * 5
labels = signals[:, :3].argmax(dim=1)
order = torch.randperm(len(signals))
signals[order[(AT - 1) * BATCH + 8], 3] = 0.0
model = Compressor()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step, rows in enumerate(order.split(BATCH)):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(signals[rows]), labels[rows])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
