"""A convolutional network whose gates and normalisation are written out in elementary operations. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCH = (400, 256) if DEVICE == "cuda" else (20, 8)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        centred = x - x.mean((2, 3), keepdim=True)
        normal = centred / (centred.square().mean((2, 3), keepdim=True) + 1e-5).sqrt()
        h = self.conv(normal * self.scale + self.shift)
        return x + 0.5 * h / (1 + torch.exp(-1.702 * h)) + 0.1 * torch.tanh(h)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), *(Block(64) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    model = nn.Sequential(model, nn.Linear(64, 4)).to(DEVICE)
    colours = torch.randn(4, 3, 1, 1, device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        y = torch.randint(0, 4, (BATCH,), device=DEVICE)
        x = 0.5 * colours[y] + torch.randn(BATCH, 3, 32, 32, device=DEVICE)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 49:
            print(f"step {step + 1}: {total.item() / 50:.3f}")
            total.zero_()


main()
