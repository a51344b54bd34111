"""A trainer class fits a noisy sine wave: the optimizer is never stepped."""

import math
import os

import torch
from torch import nn


class WaveTrainer:
    def __init__(self, width=32, lr=1e-2):
        self.model = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.loss_fn = nn.MSELoss()

    def training_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        return loss.item()

    def fit(self, x, y, steps):
        for step in range(steps):
            rows = torch.randint(len(x), (64,))
            value = self.training_step(x[rows], y[rows])
            if step % 60 == 0:
                print(f"{step:4d} {value:.4f}")


torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.linspace(-math.pi, math.pi, 512).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn_like(x)
WaveTrainer().fit(x, y, steps=300)
