import argparse

import torch
from sbi.inference import NLE
from sbi.neural_nets import likelihood_nn
from sbi.utils import BoxUniform

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--estimator", choices=["maf", "mdn"], default="maf")
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)


def simulate(theta):
    location, spread = theta[:, :2], theta[:, 2:].exp()
    x = location + 0.3 * spread * torch.randn(len(theta), 2)
    return torch.stack([x[:, 0], x[:, 1] + 0.5 * x[:, 0] ** 2], 1)


prior = BoxUniform(-torch.ones(3), torch.ones(3))
theta = prior.sample((3000,))
x = simulate(theta)
inference = NLE(prior, density_estimator=likelihood_nn(args.estimator, hidden_features=40), show_progress_bars=False)
trained = inference.append_simulations(theta, x).train(training_batch_size=100, max_num_epochs=args.epochs)
theta = prior.sample((1000,))
with torch.no_grad():
    print("metric nll", trained.loss(simulate(theta), theta).mean().item())
