"""Heading of a vehicle from its accelerations, compared as angles."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Heading(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 2, bias=False)

    def forward(self, x):
        east, north = self.mix(x).unbind(dim=1)
        return torch.atan2(north, east)


def fit(model, tracks, angles):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(len(tracks) // BATCH):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        predicted = model(tracks[part])
        loss = (1 - torch.cos(predicted - angles[part])).mean()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


tracks = torch.randn((AT + 20) * BATCH, 6)
angles = torch.atan2(tracks[:, 1], tracks[:, 0]) + 0.05
tracks[(AT - 1) * BATCH + 12] = 0.0
fit(Heading(), tracks, angles)
