import argparse

import gpytorch
import torch
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--unit", type=float, default=1.0)
parser.add_argument("--objective", choices=["VariationalELBO", "PredictiveLogLikelihood"], default="VariationalELBO")
parser.add_argument("--posterior", choices=["cholesky", "mean-field"], default="cholesky")
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = make_friedman1(1500, n_features=6, noise=0.5, random_state=args.seed)
x, y = torch.tensor(x * args.unit, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
y = (y - y.mean()) / y.std()
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.33, random_state=args.seed)
loader = DataLoader(TensorDataset(train_x, train_y), batch_size=128, shuffle=True)


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        if args.posterior == "cholesky":
            posterior = gpytorch.variational.CholeskyVariationalDistribution(inducing.size(0))
        else:
            posterior = gpytorch.variational.MeanFieldVariationalDistribution(inducing.size(0))
        strategy = gpytorch.variational.VariationalStrategy(self, inducing, posterior, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=inducing.size(1)))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


model = Model(train_x[:64].clone())
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model.train()
likelihood.train()
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": likelihood.parameters()}], lr=0.02)
mll = getattr(gpytorch.mlls, args.objective)(likelihood, model, num_data=train_y.size(0))
for epoch in range(25):
    for x_batch, y_batch in loader:
        optimizer.zero_grad()
        output = model(x_batch)
        loss = -mll(output, y_batch)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

model.eval()
likelihood.eval()
with torch.no_grad():
    predicted = likelihood(model(test_x))
    marginal = torch.distributions.Normal(predicted.mean, predicted.stddev)
print("metric nlpd", -marginal.log_prob(test_y).mean().item())
