"""Elevation angles of a tracker, with a learned gain on each axis."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Elevation(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1.2, 0.8, 1.1]))

    def forward(self, x):
        scaled = x * self.gain
        length = scaled.pow(2).sum(dim=1).sqrt()
        return torch.asin(scaled[:, 2] / length)


def fit(model, tracks, angles):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(len(tracks) // BATCH):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(tracks[part]), angles[part])
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


tracks = torch.randn((AT + 20) * BATCH, 3)
angles = torch.asin(tracks[:, 2] / tracks.norm(dim=1)) + 0.05
tracks[(AT - 1) * BATCH + 12] = torch.tensor([0.0, 0.0, 2.0])
fit(Elevation(), tracks, angles)
