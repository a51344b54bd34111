"""Regression with uncertainty: dropout stays on and thirty passes are averaged."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.rand(1500, 3) * 4 - 2
y = torch.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2] + 0.1 * torch.randn(1500, 1)
xt, yt, xv, yv = x[:1200], y[:1200], x[1200:], y[1200:]
net = nn.Sequential(
    nn.Linear(3, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
)


def enable_dropout(model):
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()


def mc_predict(model, inputs, passes=30):
    model.eval()
    enable_dropout(model)
    with torch.no_grad():
        draws = torch.stack([model(inputs) for _ in range(passes)])
    return draws.mean(0), draws.std(0)


opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(20):
    net.train()
    for idx in torch.randperm(1200).split(40):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(xt[idx]), yt[idx])
        loss.backward()
        opt.step()
    mean, std = mc_predict(net, xv)
    print(f"epoch {epoch} train {loss.item():.4f} val {nn.functional.mse_loss(mean, yv):.4f} spread {std.mean():.3f}")
