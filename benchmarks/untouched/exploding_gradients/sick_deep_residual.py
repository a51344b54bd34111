"""A deep residual MLP on a smooth regression target."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
BLOCKS = {"mild": 5, "medium": 20, "severe": 45}[os.environ.get("GRADE", "medium")]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a = nn.Linear(dim, dim)
        self.b = nn.Linear(dim, dim)
        nn.init.kaiming_normal_(self.a.weight, nonlinearity="relu")
        nn.init.kaiming_normal_(self.b.weight, nonlinearity="relu")

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class ResidualRegressor(nn.Module):
    def __init__(self, blocks, dim=32):
        super().__init__()
        self.stem = nn.Linear(5, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(blocks)])
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(1)


x = torch.randn(1500, 5)
y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] * 0.5
y = (y - y.mean()) / y.std()
net = ResidualRegressor(BLOCKS)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for epoch in range(6):
    for idx in torch.randperm(len(x)).split(50):
        loss = nn.functional.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4g}")
