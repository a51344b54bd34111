"""Images that go to the device from pinned memory, beside the computation. Needs a CUDA device.

On a CPU nothing is copied, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, SIZE = (400, 128) if DEVICE == "cuda" else (20, 16)
BATCH = 256


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    model = nn.Sequential(model, nn.Linear(32, 4)).to(DEVICE)
    colours = torch.randn(4, 3, 1, 1)
    labels = torch.randint(0, 4, (8 * BATCH,))
    images = 0.5 * colours[labels] + torch.randn(8 * BATCH, 3, SIZE, SIZE)
    if DEVICE == "cuda":
        images, labels = images.pin_memory(), labels.pin_memory()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        rows = slice(step % 8 * BATCH, (step % 8 + 1) * BATCH)
        x, y = images[rows].to(DEVICE, non_blocking=True), labels[rows].to(DEVICE, non_blocking=True)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 49:
            print(f"step {step + 1}: {total.item() / 50:.3f}")
            total.zero_()


main()
