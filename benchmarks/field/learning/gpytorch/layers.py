import argparse

import gpytorch
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = make_friedman1(900, n_features=5, noise=0.5, random_state=args.seed)
x, y = torch.tensor(2 * x - 1, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
y = (y - y.mean()) / y.std()
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.33, random_state=args.seed)
loader = DataLoader(TensorDataset(train_x, train_y), batch_size=128, shuffle=True)


class Layer(DeepGPLayer):
    def __init__(self, inputs, outputs, inducing=32):
        shape = torch.Size([]) if outputs is None else torch.Size([outputs])
        posterior = gpytorch.variational.CholeskyVariationalDistribution(inducing, batch_shape=shape)
        points = torch.randn(*shape, inducing, inputs)
        strategy = gpytorch.variational.VariationalStrategy(self, points, posterior, learn_inducing_locations=True)
        super().__init__(strategy, inputs, outputs)
        self.mean_module = (
            gpytorch.means.ConstantMean(batch_shape=shape) if outputs is None else gpytorch.means.LinearMean(inputs)
        )
        kernel = gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=inputs)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(DeepGP):
    def __init__(self):
        super().__init__()
        self.hidden = Layer(5, 2)
        self.last = Layer(2, None)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return self.last(self.hidden(x))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
elbo = gpytorch.mlls.VariationalELBO(model.likelihood, model, len(train_y))
mll = gpytorch.mlls.DeepApproximateMLL(elbo)
model.train()
for epoch in range(30):
    for x_batch, y_batch in loader:
        with gpytorch.settings.num_likelihood_samples(6):
            optimizer.zero_grad()
            loss = -mll(model(x_batch), y_batch)
            loss.backward()
            optimizer.step()
    print(epoch, loss.item())

model.eval()
with torch.no_grad(), gpytorch.settings.num_likelihood_samples(16):
    predicted = model.likelihood(model(test_x)).mean.mean(0)
print("metric rmse", (predicted - test_y).square().mean().sqrt().item())
