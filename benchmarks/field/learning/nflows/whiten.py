import argparse

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows import Flow
from nflows.transforms import CompositeTransform, LULinear, PointwiseAffineTransform
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)

x = torch.tensor(load_wine().data, dtype=torch.float32)
x, held = train_test_split(x, test_size=0.3, random_state=args.seed)
mean, std = x.mean(0), x.std(0)
scaling = [PointwiseAffineTransform(shift=-mean / std, scale=1 / std)] if args.scale else []
flow = Flow(CompositeTransform([*scaling, LULinear(13)]), StandardNormal([13]))
optimizer = torch.optim.LBFGS(flow.parameters(), lr=0.2, max_iter=5, history_size=20)
for step in range(80):

    def closure():
        optimizer.zero_grad()
        loss = -flow.log_prob(x).mean() + 1e-3 * sum((p**2).sum() for p in flow.parameters())
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    if step % 10 == 0:
        with torch.no_grad():
            print(step, loss.item(), -flow.log_prob(held).mean().item())
with torch.no_grad():
    print("metric nll", -flow.log_prob(held).mean().item())
