"""Regression of a smooth surface with L2 regularisation."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
DECAY = {"mild": 0.02, "medium": 0.2, "severe": 2.0}[os.environ.get("GRADE", "medium")]

x = torch.rand(2000, 2) * 4 - 2
y = (torch.sin(2 * x[:, 0]) + torch.cos(x[:, 1])).unsqueeze(1)
y = (y - y.mean()) / y.std()
xt, yt, xv, yv = x[:1600], y[:1600], x[1600:], y[1600:]
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=DECAY)
for epoch in range(20):
    net.train()
    for i in torch.randperm(1600).split(50):
        loss = nn.functional.mse_loss(net(xt[i]), yt[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        a, b = nn.functional.mse_loss(net(xt), yt), nn.functional.mse_loss(net(xv), yv)
        print(f"epoch {epoch} train {a:.4f} val {b:.4f}")
