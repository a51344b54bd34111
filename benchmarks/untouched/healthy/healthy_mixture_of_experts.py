"""A soft mixture of experts on a piecewise function."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class MoE(nn.Module):
    def __init__(self, experts=4, dim=24):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, experts))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(2, dim), nn.ReLU(), nn.Linear(dim, 1)) for _ in range(experts)
        )

    def forward(self, x):
        w = self.gate(x).softmax(-1)
        out = torch.cat([e(x) for e in self.experts], 1)
        return (w * out).sum(1)


x = torch.rand(2500, 2) * 2 - 1
y = torch.where(x[:, 0] > 0, torch.sin(4 * x[:, 1]), 0.8 * x[:, 1] ** 2 - x[:, 0]) + 0.05 * torch.randn(2500)
net = MoE()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(14):
    net.train()
    for idx in torch.randperm(2000).split(64):
        loss = nn.functional.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        v = nn.functional.mse_loss(net(x[2000:]), y[2000:]).item()
    print(f"epoch {epoch} train {loss.item():.4f} val {v:.4f}")
