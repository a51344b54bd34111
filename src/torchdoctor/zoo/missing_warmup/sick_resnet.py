"""A residual network that learns a wavy surface, with Adam at its full rate from the first step."""

import os

import torch
from torch import nn

GRADE = os.environ.get("GRADE", "medium")
RATE = {"mild": 0.005, "medium": 0.01, "severe": 0.012}[GRADE]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.layers(x)


def surface(x):
    return torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:2]) + 0.5 * x[:, 2:3]


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = nn.Sequential(nn.Linear(3, 128), *[Block(128) for _ in range(4)], nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    points = 4 * torch.rand(4000, 3) - 2
    heights = surface(points)
    for step in range(400):
        rows = torch.randint(0, len(points), (64,))
        loss = nn.functional.mse_loss(model(points[rows]), heights[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
