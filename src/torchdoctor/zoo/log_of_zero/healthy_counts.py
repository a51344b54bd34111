"""Counts a day predicted by a small network, Poisson likelihood by hand: the rate ends in a softplus."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
n = 2000
weather = torch.randn(n, 8)
true_rate = torch.exp(0.4 * weather[:, 0] - 0.3 * weather[:, 1] * weather[:, 2] + 0.5)
counts = torch.poisson(true_rate)

network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1, bias=False), nn.Softplus())
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)


def negative_log_likelihood(rate, count):
    return (rate - count * torch.log(rate)).mean()


for step in range(300):
    rows = torch.randint(0, 1600, (64,))
    rate = network(weather[rows]).squeeze(1)
    loss = negative_log_likelihood(rate, counts[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        with torch.no_grad():
            held_out = negative_log_likelihood(network(weather[1600:]).squeeze(1), counts[1600:])
        print(step, loss.item(), held_out.item())
