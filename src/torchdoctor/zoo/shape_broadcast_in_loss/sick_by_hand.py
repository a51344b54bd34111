"""Learns the length of a walk from its turns, loss written by hand: a column of predictions meets a row of targets."""

import os

import torch
from torch import nn, optim


def make_walks(n):
    turns = torch.randn(n, 8)
    headings = turns.cumsum(1)
    ends = torch.stack([headings.cos().sum(1), headings.sin().sum(1)], 1)
    length = ends.norm(dim=1)
    return turns, (length - length.mean()) / length.std()


def absolute_error(prediction, target):
    return (prediction - target).abs().mean()


class Fit:
    def __init__(self):
        torch.manual_seed(int(os.environ.get("SEED", "7")))
        self.net = nn.Sequential(nn.Linear(8, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
        self.optimizer = optim.AdamW(self.net.parameters(), lr=3e-3)
        self.turns, self.lengths = make_walks(1000)

    def step(self):
        rows = torch.randint(len(self.turns), (50,))
        prediction = self.net(self.turns[rows])
        loss = absolute_error(prediction, self.lengths[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


fit = Fit()
for i in range(400):
    error = fit.step()
    if i % 100 == 0:
        print(f"{i:4d} {error:.3f}")
