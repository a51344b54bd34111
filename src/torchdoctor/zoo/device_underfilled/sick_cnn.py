"""A convolutional network on small images, eight at a time on a large device. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH = 8
STEPS = 2500 if DEVICE == "cuda" else 60


class Model(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.enter = nn.Conv2d(1, channels, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(5))
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) for _ in range(5))
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        x = self.enter(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.silu(layer(norm(x)))
        return self.head(x.mean((2, 3)))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Model().to(DEVICE)
    shapes = torch.randn(5, 1, 12, 12, device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        y = torch.randint(0, 5, (BATCH,), device=DEVICE)
        x = shapes[y] + torch.randn(BATCH, 1, 12, 12, device=DEVICE)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.3f}")


main()
