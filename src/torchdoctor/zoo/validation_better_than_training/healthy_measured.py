"""A small network fits noisy measurements and is validated on points that were measured alike."""

import os

import torch
from torch import nn

NOISE = 0.7

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(1800, 6)
signal = torch.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2]
y = signal + NOISE * torch.randn(1800, 1)
model = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
for epoch in range(30):
    model.train()
    for batch in torch.randperm(1500).split(50):
        loss = nn.functional.l1_loss(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        validation = nn.functional.l1_loss(model(x[1500:]), y[1500:])
    print(f"epoch {epoch}: train {loss.item():.3f}, validation {validation.item():.3f}")
