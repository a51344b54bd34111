"""Load forecasting in the order of time, validated on the last weeks."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

hours = np.arange(24 * 120)
load = np.sin(2 * np.pi * hours / 24) + 0.4 * np.sin(2 * np.pi * hours / 168) + 0.1 * rng.normal(size=len(hours))
load = (load - load.mean()) / load.std()
series = torch.tensor(load).float()
windows = series.unfold(0, 49, 1)
cut = len(windows) - 24 * 21
train = DataLoader(TensorDataset(windows[:cut, :48], windows[:cut, 48]), batch_size=64, shuffle=False)
val = DataLoader(TensorDataset(windows[cut + 48 :, :48], windows[cut + 48 :, 48]), batch_size=256)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        _, h = self.gru(x.unsqueeze(-1))
        return self.out(h[-1]).squeeze(-1)


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    model.train()
    total = 0.0
    for x, y in train:
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        total += loss.item() * len(y)
    model.eval()
    with torch.no_grad():
        v = sum(nn.functional.mse_loss(model(x), y, reduction="sum").item() for x, y in val) / len(val.dataset)
    print(f"epoch {epoch} train {total / cut:.4f} val {v:.4f}")
