"""A perceptron on digits with a penalty on large weights, by hand."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PENALTY = 1e-4


def loss_function(model, output, labels):
    weights = sum((p**2).sum() for p in model.parameters())
    return nn.functional.cross_entropy(output, labels) + PENALTY * weights


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_digits(return_X_y=True)
dataset = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y))
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = loss_function(model, model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.3f}")
