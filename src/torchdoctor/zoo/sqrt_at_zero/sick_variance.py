"""Calibration of a sensor's readings, whose swing is to be right, too: in some windows the sensor stood still."""

import os

import torch
from torch import nn

STILL = 0.002


def windows(count, length=24):
    """True temperatures, and what a sensor with a curve of its own makes of them."""
    rhythm = torch.arange(length) * 0.4 + 6 * torch.rand(count, 1)
    true = torch.randn(count, 1) + torch.rand(count, 1) * torch.sin(rhythm)
    standing = torch.rand(count) < STILL
    true[standing] = true[standing, :1]
    return torch.tanh(0.6 * true) + 0.1 * true.pow(2), true


def swing(series):
    return series.var(dim=1).sqrt()


def train(steps=250, size=32):
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    curve = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(curve.parameters(), lr=5e-3)
    for step in range(steps):
        seen, true = windows(size)
        corrected = curve(seen.unsqueeze(-1)).squeeze(-1)
        level = (corrected - true).pow(2).mean()
        loss = level + (swing(corrected) - swing(true)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    train()
