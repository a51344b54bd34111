"""Spirals with cosine annealing and warm restarts."""

import os

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.manual_seed(int(os.environ.get("SEED", "0")))


def arms(n):
    t = torch.rand(n).sqrt() * 6
    k = torch.randint(0, 2, (n,))
    a = t + 3.1416 * k
    return torch.stack([t * a.cos(), t * a.sin()], 1) / 3.5 + 0.03 * torch.randn(n, 2), k


x, y = arms(2400)
xv, yv = arms(600)
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
sched = CosineAnnealingWarmRestarts(opt, T_0=8, eta_min=1e-5)
for epoch in range(24):
    net.train()
    parts = torch.randperm(len(x)).split(80)
    for i, idx in enumerate(parts):
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step(epoch + (i + 1) / len(parts))
    net.eval()
    with torch.no_grad():
        out = net(xv)
    v, acc = nn.functional.cross_entropy(out, yv).item(), (out.argmax(1) == yv).float().mean().item()
    print(f"{epoch} {loss.item():.4f} {v:.4f} {acc:.3f}")
