import argparse

import numpy as np
import torch
from torch import nn
from torchdiffeq import odeint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--niters", type=int, default=350)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

NOISE, LATENT = 0.1, 4
times = torch.linspace(0, 1.5, 20)


def trajectories(count):
    phase = torch.rand(count, 1) * 6.28
    radius = 0.5 + torch.rand(count, 1)
    angle = 2 * times + phase
    decay = radius * torch.exp(-0.2 * times)
    return torch.stack([decay * torch.cos(angle), decay * torch.sin(angle)], -1)


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, 20), nn.ELU(), nn.Linear(20, 20), nn.ELU(), nn.Linear(20, LATENT))

    def forward(self, t, x):
        return self.net(x)


class Recognition(nn.Module):
    def __init__(self, hidden=25):
        super().__init__()
        self.cell = nn.GRU(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 2 * LATENT)

    def forward(self, x):
        _, state = self.cell(x.flip(1))
        return self.out(state[0]).chunk(2, 1)


func, rec = Dynamics(), Recognition()
dec = nn.Sequential(nn.Linear(LATENT, 20), nn.ReLU(), nn.Linear(20, 2))
params = [*func.parameters(), *dec.parameters(), *rec.parameters()]
optimizer = getattr(torch.optim, args.optimizer)(params, lr=args.lr)
train, test = trajectories(600), trajectories(200)
noisy = train + NOISE * torch.randn_like(train)


def decode(z0):
    return dec(odeint(func, z0, times, method="rk4").permute(1, 0, 2))


for itr in range(1, args.niters + 1):
    optimizer.zero_grad()
    batch = noisy[torch.randperm(len(noisy))[:64]]
    mean, logvar = rec(batch)
    z0 = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
    pred = decode(z0)
    logpx = torch.distributions.Normal(pred, NOISE).log_prob(batch).sum((1, 2))
    kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1)
    loss = torch.mean(kl - logpx)
    loss.backward()
    optimizer.step()
    if itr % 50 == 0:
        print(f"Iter: {itr}, elbo: {-loss.item():.4f}")

with torch.no_grad():
    mean, _ = rec(test[:] + NOISE * torch.randn_like(test[:]))
    error = (decode(mean)[:] - test[:]) ** 2
    print("metric unexplained", float(error.mean() / test[:].var()))
