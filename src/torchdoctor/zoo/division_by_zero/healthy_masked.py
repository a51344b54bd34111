"""Sensor readings with gaps, rebuilt by an autoencoder: days without any count as nothing."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
hours = torch.arange(24.0)
phase = torch.rand(1200, 1) * 6.28
days = torch.sin(hours * 0.26 + phase) + 0.1 * torch.randn(1200, 24)
present = (torch.rand(1200, 24) > 0.2).float()
present[torch.randperm(1200)[:12]] = 0.0
loader = DataLoader(TensorDataset(days * present, days, present), batch_size=4, shuffle=True)

model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4), nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def masked_error(rebuilt, truth, mask):
    per_day = ((rebuilt - truth) ** 2 * mask).sum(1) / mask.sum(1).clamp_min(1)
    return per_day.mean()


for epoch in range(3):
    for seen, truth, mask in loader:
        loss = masked_error(model(seen), truth, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
