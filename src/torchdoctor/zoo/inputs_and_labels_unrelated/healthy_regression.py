"""Yields of fields from their soil: the header row was dropped from both tables."""

import os

import numpy as np
import torch
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
WIDTH = {"mild": 32, "medium": 128, "severe": 256}[GRADE]


def read_tables(rows=1000):
    random = np.random.default_rng(SEED)
    soil = random.normal(size=(rows, 8))
    yields = soil @ random.normal(size=8) + np.tanh(2 * soil[:, 0]) + 0.2 * random.normal(size=rows)
    return soil, (yields - yields.mean()) / yields.std()


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.out(self.layers(x))


def batches(x, y, size):
    order = torch.randperm(len(x))
    for start in range(0, len(x), size):
        part = order[start : start + size]
        yield x[part], y[part]


def fit():
    torch.manual_seed(SEED)
    soil, yields = read_tables()
    soil, yields = soil[1:], yields[1:]
    x = torch.tensor(soil, dtype=torch.float32)
    y = torch.tensor(yields, dtype=torch.float32).unsqueeze(1)
    cut = 700
    model = Field()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    mse = nn.MSELoss()
    for epoch in range(60):
        model.train()
        for xb, yb in batches(x[:cut], y[:cut], 50):
            loss = mse(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 4 == 3:
            model.eval()
            with torch.no_grad():
                val = mse(model(x[cut:]), y[cut:])
            print(f"{epoch + 1}: train {loss.item():.3f}, validation {val.item():.3f}")


fit()
