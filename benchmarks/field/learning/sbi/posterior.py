import argparse

import torch
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--estimator", choices=["maf", "nsf", "mdn"], default="maf")
parser.add_argument("--simulator", choices=["linear", "moons"], default="linear")
parser.add_argument("--z-score", default="independent")
parser.add_argument("--batch", type=int, default=100)
parser.add_argument("--lr", type=float, default=5e-4)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)


def simulate(theta):
    if args.simulator == "linear":
        scale = torch.tensor([1.0, 40.0, 3000.0])
        return scale * (50 + theta + 0.2 * torch.randn_like(theta))
    angle = torch.pi * (torch.rand(len(theta)) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(len(theta))
    x = torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], 1)
    shift = torch.stack([-theta.sum(1).abs(), theta[:, 1] - theta[:, 0]], 1) / 2**0.5
    return x + shift


dimensions = 3 if args.simulator == "linear" else 2
prior = BoxUniform(-torch.ones(dimensions), torch.ones(dimensions))
theta = prior.sample((3000,))
x = simulate(theta)
estimator = posterior_nn(args.estimator, z_score_x=args.z_score, hidden_features=40, num_transforms=3)
inference = NPE(prior, density_estimator=estimator, show_progress_bars=False)
trained = inference.append_simulations(theta, x).train(
    training_batch_size=args.batch, learning_rate=args.lr, max_num_epochs=args.epochs
)
print(inference.summary["epochs_trained"], inference.summary["validation_loss"][-3:])
theta = prior.sample((1000,))
x = simulate(theta)
with torch.no_grad():
    print("metric nll", trained.loss(theta, x).mean().item())
