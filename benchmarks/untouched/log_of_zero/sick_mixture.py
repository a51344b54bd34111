"""A Gaussian mixture density network with its likelihood computed in the plain domain."""

import math
import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.rand(1500, 1) * 2 - 1
branch = torch.sign(torch.randn(1500, 1))
y = branch * (0.4 + 0.6 * x.abs()) + 0.02 * torch.distributions.StudentT(2.0).sample((1500, 1))


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.pi, self.mu, self.log_sigma = nn.Linear(32, k), nn.Linear(32, k), nn.Linear(32, k)

    def forward(self, x):
        h = self.body(x)
        return torch.softmax(self.pi(h), -1), self.mu(h), self.log_sigma(h).exp()


def nll(pi, mu, sigma, t):
    density = torch.exp(-0.5 * ((t - mu) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    return -torch.log((pi * density).sum(-1)).mean()


net = MDN()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(800):
    idx = torch.randint(0, len(x), (128,))
    loss = nll(*net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 79:
        print(f"step {step + 1} nll {loss.item():.4f}")
