import argparse

import gpytorch
import torch
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["sine", "friedman", "diabetes"], default="sine")
parser.add_argument("--kernel", choices=["rbf", "matern"], default="rbf")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=120)
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "sine":
    x = torch.rand(240, 1) * 3
    y = torch.sin(2 * torch.pi * x[:, 0]) + 0.3 * torch.randn(240)
else:
    if args.data == "friedman":
        x, y = make_friedman1(300, noise=1.0, random_state=args.seed)
    else:
        x, y = load_diabetes(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.35, random_state=args.seed)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        if args.kernel == "rbf":
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1])
        else:
            kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=x.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(train_x, train_y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)


def density():
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(test_x))
    marginal = torch.distributions.Normal(predicted.mean, predicted.stddev)
    return -marginal.log_prob(test_y).mean().item()


model.train()
likelihood.train()
for step in range(args.steps):
    optimizer.zero_grad()
    output = model(train_x)
    loss = -mll(output, train_y)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(step, loss.item(), density())
        model.train()
        likelihood.train()
print("metric nlpd", density())
