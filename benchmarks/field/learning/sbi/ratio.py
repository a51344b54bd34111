import argparse

import torch
from sbi.inference import BNRE, NRE_A, NRE_B
from sbi.neural_nets import classifier_nn
from sbi.utils import BoxUniform
from sklearn.metrics import roc_auc_score

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--method", choices=["nre_a", "nre_b", "bnre"], default="nre_b")
parser.add_argument("--classifier", choices=["mlp", "resnet"], default="resnet")
parser.add_argument("--sort", type=int, default=0)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)


def simulate(theta):
    noise = torch.randn(len(theta), 4)
    return torch.cat([theta**2, theta.sin()], 1) + 0.3 * noise


prior = BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
theta = prior.sample((3000,))
x = simulate(theta)
method = {"nre_a": NRE_A, "nre_b": NRE_B, "bnre": BNRE}[args.method]
inference = method(prior, classifier=classifier_nn(args.classifier, hidden_features=40), show_progress_bars=False)
if args.sort:
    theta = theta[theta[:, 0].argsort()]
trained = inference.append_simulations(theta, x).train(training_batch_size=100, max_num_epochs=args.epochs)
theta = prior.sample((1000,))
x = simulate(theta)
with torch.no_grad():
    joint, marginal = trained(theta, x), trained(theta[torch.randperm(1000)], x)
truth = [1] * 1000 + [0] * 1000
print("metric auc", roc_auc_score(truth, torch.cat([joint.flatten(), marginal.flatten()])))
