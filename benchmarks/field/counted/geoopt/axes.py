import argparse

import geoopt
import torch
from sklearn.datasets import load_breast_cancer, load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["digits", "biopsy"], default="digits")
parser.add_argument("--axes", type=int, default=5)
parser.add_argument("--optimizer", choices=["adam", "sgd"], default="sgd")
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(args.seed)
torch.set_default_dtype(torch.float64)

X = torch.tensor((load_digits() if args.data == "digits" else load_breast_cancer()).data)
X = X - X.mean(0)
X = X / (X.std() if args.data == "digits" else X.std(0))
spread = X.T @ X / len(X)
axes = geoopt.ManifoldParameter(torch.randn(X.shape[1], args.axes), manifold=geoopt.Stiefel())
with torch.no_grad():
    axes.proj_()


def loss_of():
    return -torch.trace(axes.T @ spread @ axes) / torch.trace(spread)


if args.optimizer == "sgd":
    optimizer = geoopt.optim.RiemannianSGD([axes], lr=args.lr, momentum=0.5)
else:
    optimizer = geoopt.optim.RiemannianAdam([axes], lr=args.lr)
for step in range(args.steps):
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
best = torch.linalg.eigvalsh(spread)[-args.axes :].sum() / torch.trace(spread)
print("metric gap", float(1 + loss_of() / best))
