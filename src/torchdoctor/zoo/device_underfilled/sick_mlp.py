"""A small network trained on a large device in batches of 64. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH = 64, 256
STEPS = 4000 if DEVICE == "cuda" else 100


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    layers = [nn.Linear(32, WIDTH), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 4)).to(DEVICE)
    teacher = torch.randn(32, 4, device=DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        x = torch.randn(BATCH, 32, device=DEVICE)
        y = (x @ teacher).argmax(1)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 99:
            print(f"step {step + 1}: {total.item() / 100:.3f}")
            total.zero_()


main()
