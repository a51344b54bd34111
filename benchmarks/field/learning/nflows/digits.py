import argparse

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows import Flow
from nflows.nn.nets import ResidualNet
from nflows.transforms import (
    AffineCouplingTransform,
    BatchNorm,
    CompositeTransform,
    Logit,
    LULinear,
    PiecewiseRationalQuadraticCouplingTransform,
    RandomPermutation,
)
from nflows.utils import create_mid_split_binary_mask
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--coupling", choices=["affine", "spline"], default="affine")
parser.add_argument("--noise", type=float, default=1.0)
parser.add_argument("--clip", type=float, default=5.0)
parser.add_argument("--epochs", type=int, default=18)
args = parser.parse_args()
torch.manual_seed(args.seed)

images = torch.tensor(load_digits().data, dtype=torch.float32)
images, held = train_test_split(images, test_size=0.2, random_state=args.seed)


def dequantize(x, scale=1.0):
    return 0.02 + 0.96 * (x + scale * torch.rand_like(x)) / 17


def net(inputs, outputs):
    return ResidualNet(inputs, outputs, hidden_features=64, num_blocks=2, dropout_probability=0.2)


def coupling():
    mask = create_mid_split_binary_mask(64)
    if args.coupling == "affine":
        return AffineCouplingTransform(mask, net)
    return PiecewiseRationalQuadraticCouplingTransform(mask, net, num_bins=6, tails="linear", tail_bound=4.0)


transforms = [Logit(eps=1e-6)]
for _ in range(4 if args.coupling == "affine" else 2):
    transforms += [RandomPermutation(64), coupling(), BatchNorm(64)]
transforms.append(LULinear(64, identity_init=True))
flow = Flow(CompositeTransform(transforms), StandardNormal([64]))
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3, weight_decay=1e-5)
loader = DataLoader(images, batch_size=64, shuffle=True, drop_last=True)
held = dequantize(held)
for epoch in range(args.epochs):
    flow.train()
    for batch in loader:
        optimizer.zero_grad()
        loss = -flow.log_prob(dequantize(batch, args.noise)).mean() / 64
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), args.clip)
        optimizer.step()
    flow.eval()
    with torch.no_grad():
        print(epoch, loss.item(), -flow.log_prob(held).mean().item() / 64)
print("metric nll", -flow.log_prob(held).mean().item() / 64)
