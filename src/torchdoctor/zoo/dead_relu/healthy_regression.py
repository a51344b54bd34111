"""A regression on the diabetes data whose second hidden layer starts with biases of zero."""

import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn


class Trainer:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        nn.init.constant_(self.model[2].bias, 0.0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.criterion = nn.MSELoss()

    def step(self):
        batch = torch.randperm(len(self.x))[:64]
        loss = self.criterion(self.model(self.x[batch]), self.y[batch])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, steps):
        for step in range(steps):
            loss = self.step()
            if step % 100 == 0:
                print(f"step {step}: {loss:.3f}")


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_diabetes(return_X_y=True)
x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32).unsqueeze(1)
Trainer(x, y).fit(800)
