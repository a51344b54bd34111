import argparse

import geoopt
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--manifold", choices=["poincare", "lorentz"], default="poincare")
parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--depth", type=int, default=5)
parser.add_argument("--precision", default="float64")
args = parser.parse_args()
torch.manual_seed(args.seed)
torch.set_default_dtype(getattr(torch, args.precision))

count = 2**args.depth - 1
edges = torch.tensor([((child - 1) // 2, child) for child in range(1, count)])
apart = torch.full((count, count), float("inf"))
apart.fill_diagonal_(0.0)
apart[edges[:, 0], edges[:, 1]] = apart[edges[:, 1], edges[:, 0]] = 1.0
for middle in range(count):
    apart = torch.minimum(apart, apart[:, middle : middle + 1] + apart[middle : middle + 1])

if args.manifold == "poincare":
    manifold = geoopt.PoincareBall()
    start = 1e-2 * torch.randn(count, 4)
else:
    manifold = geoopt.Lorentz()
    start = manifold.projx(torch.cat([torch.zeros(count, 1), 1e-2 * torch.randn(count, 4)], 1))
points = geoopt.ManifoldParameter(start, manifold=manifold)
if args.optimizer == "adam":
    optimizer = geoopt.optim.RiemannianAdam([points], lr=args.lr, stabilize=50)
else:
    optimizer = geoopt.optim.RiemannianSGD([points], lr=args.lr, stabilize=50)


def distance(first, second):
    return manifold.dist(first, second)


for step in range(args.steps):
    pairs = torch.randint(0, count, (256, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    wanted = apart[pairs[:, 0], pairs[:, 1]]
    optimizer.zero_grad()
    found = distance(points[pairs[:, 0]], points[pairs[:, 1]])
    loss = (((found - wanted) / wanted) ** 2).mean()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())

with torch.no_grad():
    upper = torch.triu_indices(count, count, 1)
    found, wanted = manifold.dist(points[upper[0]], points[upper[1]]), apart[upper[0], upper[1]]
    print("metric distortion", float(((found - wanted).abs() / wanted).mean()))
