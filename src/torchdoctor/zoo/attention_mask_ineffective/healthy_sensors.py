"""Remaining life from sensor records of different lengths: attention over time, padding masked."""

import math
import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
STEPS, SENSORS = 30, 6
FILL = -1e9


def make_records(count):
    wear = torch.rand(count, 1)
    length = torch.randint(8, STEPS + 1, (count, 1))
    time = torch.arange(STEPS)
    drift = wear * (time / STEPS) ** 2
    records = 0.5 * torch.randn(count, STEPS, SENSORS) + 1.0
    records[:, :, 0] += 3 * drift
    records[:, :, 1] -= 2 * drift
    records[time >= length] = 0.0
    return records, time < length, wear.squeeze(1)


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(SENSORS, width)
        self.when = nn.Parameter(0.3 * torch.randn(STEPS, width))
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, records, present):
        x = torch.relu(self.embed(records) + self.when)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[2])
        scores = scores.masked_fill(~present.unsqueeze(1), FILL)
        mixed = scores.softmax(-1) @ self.value(x)
        last = present.sum(1) - 1
        return self.out(mixed[torch.arange(len(x)), last]).squeeze(1)


records, present, wear = make_records(1600)
val_records, val_present, val_wear = make_records(300)
reader = Reader()
optimizer = torch.optim.AdamW(reader.parameters(), lr=2e-3)
loss_fn = nn.MSELoss()
for epoch in range(6):
    reader.train()
    for rows in torch.randperm(len(records)).split(40):
        loss = loss_fn(reader(records[rows], present[rows]), wear[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reader.eval()
    with torch.no_grad():
        val = loss_fn(reader(val_records, val_present), val_wear)
    print(f"epoch {epoch}: train {loss.item():.4f}, validation {val.item():.4f}")
