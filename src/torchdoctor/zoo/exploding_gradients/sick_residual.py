"""Twenty-four residual blocks that add up, with nothing that brings the scale back."""

import os

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.Identity()  # before the block
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.kaiming_normal_(self.up.weight)
        nn.init.kaiming_normal_(self.down.weight)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, width=64, depth=24):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.Identity()  # before the head
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.first(x))))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.randn(2000, 16)
    y = x[:, :3].argmax(1)
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(300):
        rows = torch.randint(0, len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


main()
