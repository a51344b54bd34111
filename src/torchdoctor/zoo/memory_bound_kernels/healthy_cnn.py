"""A convolutional network with torch's own normalisation and activation. Needs a CUDA device.

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
        normal = nn.functional.group_norm(x, x.shape[1], self.scale.flatten(), self.shift.flatten())
        return x + nn.functional.silu(self.conv(normal))


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
