"""An autoencoder of digits trained by a small class, with Adam."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, width))
        self.decoder = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Fit:
    def __init__(self, model, data):
        self.model, self.data = model, data
        self.opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.999))

    def epoch(self):
        total = 0.0
        for rows in torch.randperm(len(self.data)).split(64):
            x = self.data[rows]
            loss = nn.functional.mse_loss(self.model(x), x)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            total += loss.item() * len(rows)
        return total / len(self.data)


torch.manual_seed(int(os.environ.get("SEED", "0")))
pixels = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
fit = Fit(AutoEncoder(), pixels)
for number in range(15):
    print(number, f"{fit.epoch():.4f}")
