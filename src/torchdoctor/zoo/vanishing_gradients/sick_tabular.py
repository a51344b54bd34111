"""A deep tanh net learns a smooth function of six features: the weights start too small for its depth."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class DeepRegressor(nn.Module):
    def __init__(self, features, width=32, depth=12):
        super().__init__()
        sizes = [features] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(depth))
        self.out = nn.Linear(width, 1)
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=0.5 / math.sqrt(layer.in_features))
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x).squeeze(-1)


def make_data(n=1024, features=6):
    x = torch.randn(n, features)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    return x, (y - y.mean()) / y.std()


def train(steps=400, batch_size=64):
    torch.manual_seed(3)
    x, y = make_data()
    model = DeepRegressor(x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for step in range(steps):
        rows = torch.randint(len(x), (batch_size,))
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    train()
