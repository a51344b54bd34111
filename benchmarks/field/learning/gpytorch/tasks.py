import argparse

import gpytorch
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
torch.manual_seed(args.seed)


def truth(x):
    return torch.stack([torch.sin(2 * torch.pi * x), torch.cos(2 * torch.pi * x) + 0.5 * x], -1)


train_x = torch.linspace(0, 2, 80)
train_y = truth(train_x) + 0.2 * torch.randn(80, 2)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.covar_module = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), num_tasks=2, rank=1)

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
model = Model(train_x, train_y, likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(args.steps):
    optimizer.zero_grad()
    loss = -mll(model(train_x), train_y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())

model.eval()
likelihood.eval()
test_x = torch.linspace(0, 2, 101)
with torch.no_grad():
    predicted = likelihood(model(test_x)).mean
print("metric error", (predicted - truth(test_x)).square().mean().sqrt().item())
