import argparse

import pyro.distributions as dist
import pyro.distributions.transforms as transforms
import torch
from sklearn.datasets import make_circles, make_moons

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["moons", "circles"], default="moons")
parser.add_argument("--shift", type=float, default=0.0)
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()
torch.manual_seed(args.seed)


def points(seed):
    if args.data == "moons":
        x, _ = make_moons(800, noise=0.05, random_state=seed)
    else:
        x, _ = make_circles(800, noise=0.05, factor=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float)
    return (x - torch.tensor([0.5, 0.25])) / 0.7 if args.data == "moons" else x / 0.6


train, test = points(args.seed) + args.shift, points(args.seed + 100) + args.shift
base = dist.Normal(torch.zeros(2), torch.ones(2))
first = transforms.spline_coupling(2, hidden_dims=[32, 32], count_bins=16)
second = transforms.spline_coupling(2, hidden_dims=[32, 32], count_bins=16)
flow = dist.TransformedDistribution(base, [first, transforms.Permute(torch.tensor([1, 0])), second])
modules = torch.nn.ModuleList([first, second])
optimizer = torch.optim.Adam(modules.parameters(), lr=5e-3)
for step in range(args.steps):
    batch = train[torch.randint(len(train), (256,))]
    optimizer.zero_grad()
    loss = -flow.log_prob(batch).mean()
    loss.backward()
    optimizer.step()
    flow.clear_cache()
    if step % 100 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("metric nll", -flow.log_prob(test).mean().item())
