import argparse

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Predictive, Trace_ELBO, autoguide
from pyro.nn import PyroModule, PyroSample
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["diabetes", "friedman"], default="diabetes")
parser.add_argument("--guide", default="AutoDiagonalNormal")
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--standardize", type=int, default=1)
args = parser.parse_args()
pyro.set_rng_seed(args.seed)

x, y = load_diabetes(return_X_y=True) if args.data == "diabetes" else make_friedman1(500, 6, random_state=args.seed)
x, y = torch.tensor(x, dtype=torch.float), torch.tensor(y, dtype=torch.float)
x = (x - x.mean(0)) / x.std(0)
if args.standardize:
    y = (y - y.mean()) / y.std()
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=args.seed)


class Linear(PyroModule):
    def __init__(self, inputs):
        super().__init__()
        self.linear = PyroModule[nn.Linear](inputs, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, inputs]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, x, y=None):
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("obs", dist.Normal(mean, sigma), obs=y)
        return mean


model = Linear(x.shape[1])
guide = getattr(autoguide, args.guide)(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": args.lr}), Trace_ELBO())
pyro.clear_param_store()
for step in range(900):
    loss = svi.step(x_train, y_train)
    if step % 100 == 0:
        print(step, loss / len(x_train))

samples = Predictive(model, guide=guide, num_samples=200, return_sites=("_RETURN",))(x_test)
mean = samples["_RETURN"].mean(0)
print("metric r2", (1 - (mean - y_test).square().mean() / y_test.var()).item())
