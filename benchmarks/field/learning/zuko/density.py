import argparse

import torch
import zuko
from sklearn.datasets import make_circles, make_moons
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--flow", choices=["NSF", "MAF", "RealNVP"], default="NSF")
parser.add_argument("--data", choices=["moons", "circles"], default="moons")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(args.seed)


def points(seed):
    if args.data == "moons":
        x, _ = make_moons(1500, noise=0.05, random_state=seed)
        x = (x - [0.5, 0.25]) / [0.87, 0.5]
    else:
        x, _ = make_circles(1500, noise=0.05, factor=0.5, random_state=seed)
        x = x / 0.56
    return args.scale * torch.tensor(x, dtype=torch.float32)


train, test = points(args.seed), points(args.seed + 100)
flow = getattr(zuko.flows, args.flow)(2, transforms=3, hidden_features=(48, 48))
optimizer = torch.optim.Adam(flow.parameters(), lr=args.lr)
loader = DataLoader(TensorDataset(train), batch_size=64, shuffle=True)
for epoch in range(args.epochs):
    for (x,) in loader:
        loss = -flow().log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
with torch.no_grad():
    print("metric nll", -flow().log_prob(test).mean().item())
