import argparse

import torch
import torchsde
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--noise", choices=["diagonal", "general"], default="diagonal")
parser.add_argument("--target", choices=["reverting", "shifted"], default="reverting")
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--dt", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(args.seed)
times = torch.linspace(0, 1, 6)


class Truth(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def f(self, t, y):
        goal = 1.0 if args.target == "shifted" else 0.0
        return 2.0 * (goal - y)

    def g(self, t, y):
        return 0.5 * torch.ones_like(y)


class Learned(nn.Module):
    sde_type = "ito" if args.noise == "diagonal" else "stratonovich"
    noise_type = args.noise

    def __init__(self, hidden=24):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.spread = nn.Sequential(
            nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 2 if args.noise == "diagonal" else 4), nn.Softplus()
        )

    def f(self, t, y):
        return self.drift(torch.cat([y, t.expand(len(y), 1)], 1))

    def g(self, t, y):
        spread = self.spread(t.reshape(1, 1)).expand(len(y), -1)
        return spread if args.noise == "diagonal" else spread.reshape(-1, 2, 2)


def distance(a, b):
    a, b = a.transpose(0, 1).flatten(1), b.transpose(0, 1).flatten(1)
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()


def sample(sde, count):
    with torch.set_grad_enabled(sde is learned):
        method = "euler" if sde.sde_type == "ito" else "midpoint"
        return torchsde.sdeint(sde, torch.ones(count, 2) * torch.tensor([1.5, -1.5]), times, dt=args.dt, method=method)


truth, learned = Truth(), Learned()
real = sample(truth, 2000)
held = sample(truth, 500)
optimizer = torch.optim.Adam(learned.parameters(), lr=1e-2)
for step in range(args.steps):
    chosen = torch.randint(2000, (128,))
    loss = distance(sample(learned, 128), real[:, chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("metric distance", distance(sample(learned, 500), held).item())
