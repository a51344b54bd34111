"""A deep net learns a smooth function of six features: twelve layers with skip connections."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class DeepRegressor(nn.Module):
    def __init__(self, features, width=32, depth=12):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.hidden:
            x = x + torch.sigmoid(layer(x))
        return self.out(x).squeeze(-1)


def make_data(n=1024, features=6):
    x = torch.randn(n, features)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    return x, (y - y.mean()) / y.std()


def train(steps=800, batch_size=64):
    torch.manual_seed(int(os.environ.get("SEED", "3")))
    x, y = make_data()
    model = DeepRegressor(x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
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
