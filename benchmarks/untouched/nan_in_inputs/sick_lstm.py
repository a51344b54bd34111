"""An LSTM that forecasts the next value of several temperature series."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")


def make_series(n=64, length=200):
    t = np.arange(length)
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    period = rng.uniform(15, 40, (n, 1))
    return np.sin(2 * np.pi * t / period + phase) + 0.05 * rng.normal(size=(n, length))


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.LSTM(2, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1]).squeeze(-1)


def sample(series, humidity, size, window=24):
    i = rng.integers(0, len(series), size)
    s = rng.integers(0, series.shape[1] - window - 1, size)
    temp = np.stack([series[a, b : b + window] for a, b in zip(i, s, strict=True)])
    hum = np.stack([humidity[a, b : b + window] for a, b in zip(i, s, strict=True)])
    target = np.array([series[a, b + window] for a, b in zip(i, s, strict=True)])
    return torch.tensor(np.stack([temp, hum], -1)).float(), torch.tensor(target).float()


series = make_series()
humidity = 0.5 * np.cos(np.cumsum(rng.normal(size=series.shape), axis=1) * 0.1)
gaps = {"mild": 1, "medium": 4, "severe": 2000}[GRADE]
humidity[rng.integers(0, 64, gaps), rng.integers(40, 160, gaps)] = np.nan  # gauge outages

net = Forecaster()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(400):
    x, y = sample(series, humidity, 64)
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
