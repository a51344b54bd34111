"""Outcomes that are random by nature: the best possible loss is the entropy of the coin."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(8000, 6)
p = torch.sigmoid(1.2 * x[:, 0] - 0.8 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3])
y = torch.bernoulli(p)
entropy = -(p * p.log() + (1 - p) * (1 - p).log()).mean().item()
train = DataLoader(TensorDataset(x[:6000], y[:6000]), batch_size=128, shuffle=True)
xv, yv = x[6000:], y[6000:]
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
bce = nn.BCEWithLogitsLoss()
for epoch in range(8):
    model.train()
    total = 0.0
    for a, b in train:
        opt.zero_grad()
        loss = bce(model(a).squeeze(1), b)
        loss.backward()
        opt.step()
        total += loss.item() * len(b)
    model.eval()
    with torch.no_grad():
        v = bce(model(xv).squeeze(1), yv).item()
    print(f"epoch {epoch} train {total / 6000:.4f} val {v:.4f} (entropy {entropy:.4f})")
