"""A perceptron on digits with a trainer that clips every element of the gradient."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import clip_grad_value_


class Trainer:
    def __init__(self, model, optimizer, limit):
        self.model, self.optimizer, self.limit = model, optimizer, limit

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        clip_grad_value_(self.model.parameters(), self.limit)
        self.optimizer.step()
        return loss.item()


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
network = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
trainer = Trainer(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), limit=0.02)
for epoch in range(5):
    for rows in torch.randperm(len(x)).split(32):
        value = trainer.step(x[rows], y[rows])
    print(epoch, f"{value:.3f}")
