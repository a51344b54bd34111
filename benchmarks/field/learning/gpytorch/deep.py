import argparse

import gpytorch
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.3, random_state=args.seed)
loader = DataLoader(TensorDataset(train_x, train_y), batch_size=64, shuffle=True)


class Layer(gpytorch.models.ApproximateGP):
    def __init__(self, features, low=-10.0, high=10.0, size=32):
        posterior = gpytorch.variational.CholeskyVariationalDistribution(size, batch_shape=torch.Size([features]))
        strategy = gpytorch.variational.GridInterpolationVariationalStrategy(self, size, [(low, high)], posterior)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=features))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(gpytorch.Module):
    def __init__(self, features=10):
        super().__init__()
        self.extractor = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, features))
        self.layer = Layer(features)
        self.scale = gpytorch.utils.grid.ScaleToBounds(-10.0, 10.0)

    def forward(self, x):
        features = self.scale(self.extractor(x))
        return self.layer(features.transpose(-1, -2).unsqueeze(-1))


model = Model()
likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=10, num_classes=10)
optimizer = torch.optim.Adam(
    [{"params": model.parameters()}, {"params": likelihood.parameters()}], lr=0.01, weight_decay=1e-5
)
mll = gpytorch.mlls.VariationalELBO(likelihood, model.layer, num_data=len(train_y))
for epoch in range(args.epochs):
    model.train()
    likelihood.train()
    for x_batch, y_batch in loader:
        optimizer.zero_grad()
        loss = -mll(model(x_batch), y_batch)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

model.eval()
likelihood.eval()
with torch.no_grad():
    predicted = likelihood(model(test_x)).probs.mean(0).argmax(-1)
print("metric accuracy", (predicted == test_y).float().mean().item())
