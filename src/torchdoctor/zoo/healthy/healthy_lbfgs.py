"""A physics-like curve fitted with LBFGS, whose step evaluates a closure several times."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
t = torch.linspace(0, 2, 200).unsqueeze(1)
u = torch.exp(-t) * torch.cos(5 * t)
model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, history_size=20, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = ((model(t) - u) ** 2).mean()
    loss.backward()
    return loss


for step in range(40):
    loss = optimizer.step(closure)
    if step % 10 == 0:
        print(step, float(loss))
