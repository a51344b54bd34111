import argparse

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()
pyro.set_rng_seed(args.seed)

centers = torch.tensor([-4.0, 0.0, 5.0])
data = centers[torch.multinomial(torch.tensor([0.3, 0.5, 0.2]), 600, replacement=True)] + 0.8 * torch.randn(600)


@config_enumerate
def model(data):
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3)))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("components", 3):
        locations = pyro.sample("locations", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        assignment = pyro.sample("assignment", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locations[assignment], scale), obs=data)


def initial(site):
    if site["name"] == "locations":
        return torch.quantile(data, torch.tensor([0.1, 0.5, 0.9]))
    return torch.full((3,), 1 / 3) if site["name"] == "weights" else torch.tensor(2.0)


guide = AutoDelta(poutine.block(model, expose=["weights", "locations", "scale"]), init_loc_fn=initial)
svi = SVI(model, guide, pyro.optim.Adam({"lr": args.lr, "betas": (0.8, 0.99)}), TraceEnum_ELBO())
for step in range(250):
    loss = svi.step(data)
    if step % 50 == 0:
        print(step, loss)
found = guide.median(data)["locations"].sort().values
print("metric error", (found - centers).abs().max().item())
