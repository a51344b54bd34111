"""Logistic regression with the loss written out."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32


def train(model, x, y, order):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, rows in enumerate(order.split(BATCH)):
        p = torch.sigmoid(model(x[rows]).squeeze(1))
        target = y[rows]
        loss = -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()
        backward(loss, optimizer)
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


def backward(loss, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()


x = torch.randn((AT + 20) * BATCH, 9)
y = (x[:, 0] + 0.5 * torch.randn(len(x)) > 0).float()
order = torch.randperm(len(x))
x[order[(AT - 1) * BATCH + 20], 0] = 5000.0
train(nn.Linear(9, 1), x, y, order)
