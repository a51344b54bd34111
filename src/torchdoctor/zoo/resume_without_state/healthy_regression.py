"""Regression with momentum and a falling rate; the second session begins where the first ended."""

import copy
import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn


class Session:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.2)

    def fit(self, epochs):
        for epoch in range(epochs):
            for rows in torch.randperm(len(self.x)).split(40):
                loss = nn.functional.mse_loss(self.net(self.x[rows]), self.y[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.scheduler.step()
            print(f"epoch {epoch}: {loss.item():.4f}")

    def snapshot(self):
        parts = {"net": self.net, "optimizer": self.optimizer, "scheduler": self.scheduler}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def restore(self, snapshot):
        self.net.load_state_dict(snapshot["net"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.scheduler.load_state_dict(snapshot["scheduler"])


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_friedman1(1200, 10, noise=0.3, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32).unsqueeze(1)
    monday = Session(x, y)
    monday.fit(8)
    saved = monday.snapshot()
    tuesday = Session(x, y)
    tuesday.restore(saved)
    tuesday.fit(4)


main()
