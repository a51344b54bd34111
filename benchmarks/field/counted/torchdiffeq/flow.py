import argparse

import torch
from sklearn.datasets import make_circles, make_moons
from torch import nn
from torchdiffeq import odeint_adjoint as odeint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["circles", "moons"], default="circles")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--niters", type=int, default=200)
parser.add_argument("--num-samples", type=int, default=256)
args = parser.parse_args()
torch.manual_seed(args.seed)


def sample(count, seed):
    make = {"circles": make_circles, "moons": make_moons}[args.data]
    settings = {"factor": 0.5} if args.data == "circles" else {}
    points, _ = make(count, noise=0.06, random_state=seed, **settings)
    return torch.tensor(points, dtype=torch.float32)


class CNF(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.out = nn.Linear(hidden, 2)

    def forward(self, t, states):
        z = states[0]
        with torch.enable_grad():
            z = z.requires_grad_(True)
            dz_dt = self.out(self.net(torch.cat([z, t.expand(len(z), 1)], 1)))
            trace = sum(torch.autograd.grad(dz_dt[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
        return dz_dt, -trace.view(len(z), 1)


func = CNF()
optimizer = torch.optim.Adam(func.parameters(), lr=args.lr)
base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))


def log_density(x):
    times = torch.tensor([1.0, 0.0])
    z_t, logp_diff_t = odeint(func, (x, torch.zeros(len(x), 1)), times, method="rk4", options={"step_size": 0.1})
    return base.log_prob(z_t[-1]) - logp_diff_t[-1].view(-1)


for itr in range(1, args.niters + 1):
    optimizer.zero_grad()
    loss = -log_density(sample(args.num_samples, args.seed * 10000 + itr)).mean(0)
    loss.backward()
    optimizer.step()
    if itr % 20 == 0:
        print(f"Iter: {itr}, loss: {loss.item():.4f}")
print("metric nll", -float(log_density(sample(2000, 77)).mean().detach()))
