"""An encoder that pulls two views together and pushes others apart, with nothing to end the pushing."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.head = nn.Linear(48, width)

    def forward(self, x):
        return self.head(self.body(x))


def distance(a, b):
    return (a - b).square().sum(dim=1)


torch.manual_seed(int(os.environ.get("SEED", "0")))
images = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=5e-3)
for step in range(400):
    anchor = images[torch.randint(0, len(images), (64,))]
    first = encoder(anchor + 0.1 * torch.randn_like(anchor))
    second = encoder(anchor + 0.1 * torch.randn_like(anchor))
    gap = distance(first, second) - distance(first, second.roll(1, 0))
    loss = gap.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
