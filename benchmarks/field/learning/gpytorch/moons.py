import argparse

import gpytorch
import torch
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["moons", "biopsy"], default="moons")
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "moons":
    x, y = make_moons(400, noise=0.2, random_state=args.seed)
else:
    x, y = load_breast_cancer(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.4, random_state=args.seed)


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        posterior = gpytorch.variational.CholeskyVariationalDistribution(inducing.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, posterior))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.covar_module.base_kernel.lengthscale = x.size(1) ** 0.5

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


model = Model(train_x[:80].clone())
likelihood = gpytorch.likelihoods.BernoulliLikelihood()
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
mll = gpytorch.mlls.VariationalELBO(likelihood, model, train_y.numel())
for step in range(150):
    optimizer.zero_grad()
    output = model(train_x)
    loss = -mll(output, train_y)
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())

model.eval()
likelihood.eval()
with torch.no_grad():
    probability = likelihood(model(test_x)).mean
print("metric accuracy", ((probability > 0.5) == (test_y > 0.5)).float().mean().item())
