import argparse

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows import Flow, MaskedAutoregressiveFlow
from nflows.transforms import (
    CompositeTransform,
    MaskedAffineAutoregressiveTransform,
    MaskedPiecewiseRationalQuadraticAutoregressiveTransform,
    ReversePermutation,
)
from sklearn.datasets import make_circles, make_moons

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["moons", "circles"], default="moons")
parser.add_argument("--flow", choices=["affine", "spline", "masked"], default="affine")
parser.add_argument("--steps", type=int, default=700)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--compile", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)


def draw(count, seed=None):
    if args.data == "moons":
        x, _ = make_moons(count, noise=0.1, random_state=seed)
    else:
        x, _ = make_circles(count, noise=0.07, factor=0.5, random_state=seed)
    return torch.tensor(x, dtype=torch.float32)


def build():
    if args.flow == "masked":
        return MaskedAutoregressiveFlow(2, 32, 5, 2)
    transforms = []
    for _ in range(5 if args.flow == "affine" else 3):
        transforms.append(ReversePermutation(features=2))
        if args.flow == "affine":
            transforms.append(MaskedAffineAutoregressiveTransform(features=2, hidden_features=16))
        else:
            transforms.append(
                MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                    features=2, hidden_features=32, num_bins=8, tails="linear", tail_bound=3.0
                )
            )
    return Flow(CompositeTransform(transforms), StandardNormal(shape=[2]))


flow = build()
log_prob = torch.compile(flow.log_prob, backend="aot_eager") if args.compile else flow.log_prob
held = draw(2000, 1000 + args.seed)
optimizer = torch.optim.Adam(flow.parameters(), lr=args.lr)
for step in range(args.steps):
    x = draw(128, 10**6 * args.seed + step)
    optimizer.zero_grad()
    loss = -log_prob(x).mean()
    loss.backward()
    optimizer.step()
    if (step + 1) % 350 == 0:
        with torch.no_grad():
            print(step + 1, -flow.log_prob(held).mean().item())
flow.eval()
with torch.no_grad():
    print("metric nll", -flow.log_prob(held).mean().item())
