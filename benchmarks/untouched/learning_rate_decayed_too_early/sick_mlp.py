"""Spirals with a step schedule."""

import os

import torch
from torch import nn, optim

torch.manual_seed(int(os.environ.get("SEED", "0")))
MILESTONES = {"mild": [8, 12], "medium": [2, 3, 4], "severe": [1, 2]}[os.environ.get("GRADE", "medium")]


def spirals(n, arms=3):
    t = torch.rand(n).sqrt() * 7
    arm = torch.randint(0, arms, (n,))
    angle = t + 6.283 * arm / arms
    pts = torch.stack([t * angle.cos(), t * angle.sin()], 1) / 4
    return pts + 0.03 * torch.randn(n, 2), arm


x, y = spirals(3000)
xv, yv = spirals(600)
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = optim.Adam(model.parameters(), lr=5e-3)
scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=MILESTONES, gamma=0.05)
criterion = nn.CrossEntropyLoss()
for epoch in range(25):
    model.train()
    total = 0.0
    for idx in torch.randperm(len(x)).split(100):
        optimizer.zero_grad()
        loss = criterion(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
        total += loss.item() / 30
    scheduler.step()
    model.eval()
    with torch.no_grad():
        out = model(xv)
        acc = (out.argmax(1) == yv).float().mean().item()
    print(f"epoch {epoch} train {total:.4f} val {criterion(out, yv).item():.4f} acc {acc:.3f}")
