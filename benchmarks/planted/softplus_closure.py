"""Positive regression through a softplus, with the update given a closure."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 24


def positive(x):
    grown = x.exp()
    return torch.log(1 + grown)


x = torch.randn((AT + 20) * BATCH, 7)
y = x[:, 0].abs()
x[(AT - 1) * BATCH + 5] = 400.0
x[(AT - 1) * BATCH + 6] = -400.0
model = nn.Sequential(nn.Linear(7, 32), nn.LeakyReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def make_closure(inputs, targets):
    def closure():
        optimizer.zero_grad()
        predicted = positive(model(inputs)).mean(dim=1)
        loss = nn.functional.l1_loss(predicted, targets)
        loss.backward()
        return loss

    return closure


for step in range(AT + 20):
    part = slice(step * BATCH, (step + 1) * BATCH)
    loss = optimizer.step(make_closure(x[part], y[part]))
    if step % 50 == 0:
        print(step, loss.item())
