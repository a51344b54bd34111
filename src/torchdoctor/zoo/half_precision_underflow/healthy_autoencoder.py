"""Pictures rebuilt under float16 autocast, the error a mean over all pixels: a gradient scaler lifts it."""

import os

import torch
from torch import nn

GRADE = os.environ.get("GRADE", "medium")
WEIGHT = {"mild": 0.05, "medium": 1e-3, "severe": 1e-5}[GRADE]


def pictures(n, size=24):
    grid = torch.linspace(-1, 1, size)
    cx, cy, width = torch.rand(3, n, 1, 1)
    x, y = grid.view(1, 1, -1) - (cx - 0.5), grid.view(1, -1, 1) - (cy - 0.5)
    return torch.exp(-(x**2 + y**2) / (0.05 + 0.2 * width)).flatten(1)


class Autoencoder(nn.Module):
    def __init__(self, pixels=576, code=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, 96), nn.Tanh(), nn.Linear(96, 48), nn.Tanh(), nn.Linear(48, code)
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 48), nn.Tanh(), nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, pixels)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(int(os.environ.get("SEED", "0")))
images = pictures(2048)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu")
for step in range(150):
    batch = images[torch.randint(0, 2048, (128,))]
    with torch.autocast("cpu", dtype=torch.float16):
        rebuilt = model(batch)
    loss = WEIGHT * ((rebuilt.float() - batch) ** 2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 0:
        print(step, loss.item())
