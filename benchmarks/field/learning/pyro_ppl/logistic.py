import argparse

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--batch-size", type=int, default=100)
args = parser.parse_args()
pyro.set_rng_seed(args.seed)

x, y = load_breast_cancer(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float), torch.tensor(y, dtype=torch.float)
x = (x - x.mean(0)) / x.std(0)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=args.seed)


class Logistic(PyroModule):
    def __init__(self):
        super().__init__()
        self.linear = PyroModule[nn.Linear](30, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 0.5).expand([1, 30]).to_event(2))

    def forward(self, x, y=None):
        logits = self.linear(x).squeeze(-1)
        with pyro.poutine.scale(scale=len(x_train) / len(x)), pyro.plate("batch", len(x)):
            pyro.sample("obs", dist.Bernoulli(logits=logits), obs=y)
        return logits


model = Logistic()
guide = AutoNormal(model)
guide(x_train[:10], y_train[:10])
loss_fn = Trace_ELBO().differentiable_loss
optimizer = torch.optim.Adam([*model.parameters(), *guide.parameters()], lr=0.02)
for step in range(400):
    index = torch.randperm(len(x_train))[: args.batch_size]
    loss = loss_fn(model, guide, x_train[index], y_train[index]) / len(x_train)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())

with torch.no_grad():
    traces = [pyro.poutine.trace(guide).get_trace(x_test) for _ in range(50)]
    logits = torch.stack([pyro.poutine.replay(model, trace)(x_test) for trace in traces])
    loss = nn.functional.binary_cross_entropy(logits.sigmoid().mean(0), y_test)
print("metric loss", loss.item())
