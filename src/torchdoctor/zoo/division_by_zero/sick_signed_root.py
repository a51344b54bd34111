"""A signed root as an autograd function of its own: its backward divides by the root of whatever came in."""

import os

import torch
from torch import nn


class SignedRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        root = x.abs().sqrt()
        ctx.save_for_backward(root)
        return x.sign() * root

    @staticmethod
    def backward(ctx, grad):
        (root,) = ctx.saved_tensors
        return grad / (2 * root)


class Bilinear(nn.Module):
    """Products of two views of a sample, compressed by the root."""

    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(12, 24), nn.Hardtanh(-2, 2))
        self.right = nn.Sequential(nn.Linear(12, 24), nn.Hardshrink(0.02))
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(SignedRoot.apply(self.left(x) * self.right(x))).squeeze(-1)


class Experiment:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.x = torch.randn(2400, 12)
        self.y = self.x[:, 0] * self.x[:, 1] + 0.5 * self.x[:, 2]
        self.net = Bilinear()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=2e-3)

    def batches(self, size=32):
        yield from torch.randperm(len(self.x)).split(size)

    def run(self, epochs):
        for epoch in range(epochs):
            for rows in self.batches():
                error = (self.net(self.x[rows]) - self.y[rows]).pow(2).mean()
                self.optimizer.zero_grad(set_to_none=True)
                error.backward()
                self.optimizer.step()
            print(f"epoch {epoch + 1}: squared error {error.item():.3f}")


Experiment(int(os.environ.get("SEED", "0"))).run(4)
