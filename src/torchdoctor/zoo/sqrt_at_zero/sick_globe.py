"""Cities placed on a globe by their distances: the arc cosine of each city with itself lies at its border."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Globe(nn.Module):
    """A unit vector for each city, from what is known of it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 3))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


def angles(a, b):
    cosines = a @ b.T
    return torch.acos(cosines.clamp(-1, 1))


def cities(count):
    true = F.normalize(torch.randn(count, 3), dim=-1)
    return torch.cat([true + 0.05 * torch.randn(count, 3), torch.randn(count, 3)], dim=1), true


def batches(count, size, epochs):
    for _ in range(epochs):
        yield from torch.randperm(count).split(size)


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, true = cities(1600)
model = Globe()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for number, rows in enumerate(batches(len(x), 40, 6)):
    placed = model(x[rows])
    with torch.no_grad():
        wanted = angles(true[rows], true[rows])
    loss = F.mse_loss(angles(placed, placed), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 40 == 0:
        print(number, loss.item())
