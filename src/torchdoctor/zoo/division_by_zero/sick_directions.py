"""Directions of particles by their momenta, brought to length one: a particle at rest has no direction."""

import os

import torch
from torch import nn


class JetTagger(nn.Module):
    """A set of particles, each by its direction and energy."""

    def __init__(self, width=32):
        super().__init__()
        self.particle = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width))
        self.frame = nn.Parameter(torch.eye(3))
        self.jet = nn.Sequential(nn.ReLU(), nn.Linear(width, 1))

    def forward(self, momenta):
        turned = momenta @ self.frame
        inverse = 1 / turned.norm(dim=-1, keepdim=True)
        energy = (momenta.pow(2).sum(-1, keepdim=True) + 0.1).sqrt()
        return self.jet(self.particle(torch.cat([turned * inverse, energy], dim=-1)).mean(dim=1)).squeeze(-1)


def jets(count, particles=8, resting=0.00008):
    """Narrow and wide jets; a few particles were stopped in the detector."""
    narrow = (torch.rand(count) < 0.5).float()
    axis = torch.nn.functional.normalize(torch.randn(count, 1, 3), dim=-1)
    momenta = axis + (1.2 - 0.8 * narrow[:, None, None]) * torch.randn(count, particles, 3)
    momenta[torch.rand(count, particles) < resting] = 0.0
    return momenta, narrow


torch.manual_seed(int(os.environ.get("SEED", "0")))
momenta, narrow = jets(6400)
model = JetTagger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.BCEWithLogitsLoss()
for number, rows in enumerate(torch.arange(6400).split(32)):

    def closure(rows=rows):
        optimizer.zero_grad()
        loss = criterion(model(momenta[rows]), narrow[rows])
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    if number % 25 == 0:
        print(number, loss.item())
