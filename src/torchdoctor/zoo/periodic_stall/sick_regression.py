"""A regression loop that collects garbage by hand every five steps."""

import gc
import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn


class Loop:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.net = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 1))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)
        self.steps = 0

    def update(self, rows):
        loss = nn.functional.mse_loss(self.net(self.x[rows]), self.y[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        if self.steps % 5 == 0:
            gc.collect()
        return loss.item()

    def epoch(self):
        losses = [self.update(rows) for rows in torch.randperm(len(self.x)).split(50)]
        return sum(losses) / len(losses)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_friedman1(1500, 10, noise=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32).unsqueeze(1)
    loop = Loop(x, y)
    for epoch in range(10):
        print(f"epoch {epoch}: {loop.epoch():.4f}")


main()
