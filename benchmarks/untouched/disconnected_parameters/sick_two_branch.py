"""A wide-and-deep regression model with two branches."""

import os

import torch
import torch.nn as nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(10, 16)
        self.deep = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.merge = nn.Linear(16, 1)

    def forward(self, x):
        features = torch.relu(self.wide(x))
        return self.merge(features).squeeze(-1)


def target(x):
    return torch.sin(2 * x[:, 0]) * x[:, 1] + 0.5 * x[:, 2].abs()


x = torch.randn(2000, 10)
y = target(x)
model = WideDeep()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(15):
    for idx in torch.randperm(len(x)).split(64):
        loss = (model(x[idx]) - y[idx]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 3 == 0:
        print(epoch, round(loss.item(), 4))
