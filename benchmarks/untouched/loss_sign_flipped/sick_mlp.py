"""Maximum likelihood training of a digit classifier."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), nn.LogSoftmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def log_likelihood(x, t):
    return model(x)[torch.arange(len(t)), t].mean()


for epoch in range(12):
    for idx in torch.randperm(len(X)).split(64):
        objective = log_likelihood(X[idx], y[idx])
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    with torch.no_grad():
        acc = (model(X).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch} log-likelihood {objective.item():.4f} acc {acc:.3f}")
