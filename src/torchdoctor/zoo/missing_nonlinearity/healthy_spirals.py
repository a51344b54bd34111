"""Two spirals are told apart by a small network with two hidden layers."""

import math
import os

import torch
from torch import nn


class SpiralNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.fc1 = nn.Linear(2, width)
        self.act1 = nn.ReLU()
        self.fc2 = nn.Linear(width, width)
        self.act2 = nn.ReLU()
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = self.act1(self.fc1(x))
        x = self.act2(self.fc2(x))
        return self.out(x)


def spirals(n):
    turn = torch.rand(n).sqrt() * 3 * math.pi + 0.5
    side = torch.randint(2, (n,))
    angle = turn + side * math.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 6
    return points + 0.02 * torch.randn(n, 2), side


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = spirals(2000)
    x_val, y_val = spirals(500)
    net = SpiralNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(15):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = loss_fn(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            scores = net(x_val)
            val, accuracy = loss_fn(scores, y_val), (scores.argmax(1) == y_val).float().mean()
        net.train()
        print(f"epoch {epoch:2d}  train {loss.item():.3f}  val {val.item():.3f}  accuracy {accuracy.item():.3f}")


main()
