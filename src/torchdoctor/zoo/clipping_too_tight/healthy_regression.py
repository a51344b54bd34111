"""A regression with gradient descent and a clipping norm above most of its gradients."""

import os

import torch
import torch.nn as nn


def make(count=1500):
    x = torch.randn(count, 8)
    return x, torch.stack([x[:, 0] * x[:, 1], 2 * x[:, 2], x[:, 3].abs() - 1], dim=1) + 0.1 * torch.randn(count, 3)


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = make()
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
history = []
for epoch in range(8):
    for rows in torch.randperm(len(x)).split(50):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x[rows]), y[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 4.0)
        opt.step()
        history.append(loss.item())
    print(epoch, sum(history[-30:]) / 30)
