import argparse

import normflows as nf
import numpy as np
import torch
from sklearn.datasets import make_circles, make_moons
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--flow", default="coupling")
parser.add_argument("--data", default="moons")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--layers", type=int, default=6)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)


def sample(count):
    if args.data == "moons":
        return make_moons(count, noise=0.08)[0]
    if args.data == "circles":
        return make_circles(count, noise=0.06, factor=0.5)[0]
    angle = np.sqrt(np.random.rand(count)) * 9
    mixed = np.column_stack([angle * np.cos(angle), angle * np.sin(angle)]) / 9
    height = np.sin(3 * mixed[:, :1]) + 0.1 * np.random.randn(count, 1)
    return np.column_stack([100 * mixed + 300, height, np.exp(height)]) + 0.03 * np.random.randn(count, 4)


scaler = StandardScaler().fit(sample(4000))
dim = scaler.mean_.size


def batch(count):
    return torch.tensor(scaler.transform(sample(count)), dtype=torch.float32)


flows = []
for _ in range(args.layers):
    if args.flow == "coupling":
        net = nf.nets.MLP([(dim + 1) // 2, 48, 48, 2 * (dim // 2)], init_zeros=True)
        flows.append(nf.flows.AffineCouplingBlock(net))
        flows.append(nf.flows.Permute(dim, mode="swap"))
    elif args.flow == "spline":
        flows.append(nf.flows.CoupledRationalQuadraticSpline(dim, 1, 32))
        flows.append(nf.flows.LULinearPermute(dim))
    else:
        flows.append(nf.flows.MaskedAffineAutoregressive(dim, 48, num_blocks=1))
        flows.append(nf.flows.LULinearPermute(dim))
model = nf.NormalizingFlow(nf.distributions.DiagGaussian(dim, trainable=False), flows)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)

history = []
for step in range(args.steps):
    optimizer.zero_grad()
    loss = model.forward_kld(batch(256))
    if ~(torch.isnan(loss) | torch.isinf(loss)):
        loss.backward()
        optimizer.step()
    history.append(loss.item())
    if step % 50 == 0:
        print(step, history[-1])

model.eval()
with torch.no_grad():
    print("metric nll", -float(model.log_prob(batch(4000)).mean()))
