"""A perceptron on digits whose first weights were drawn from a normal distribution."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def initialise(module):
    if isinstance(module, nn.Linear):
        scale = 1.0 / module.in_features**0.5
        nn.init.zeros_(module.bias)
        with torch.no_grad():
            module.weight.normal_(0.0, scale)


torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_digits(return_X_y=True)
dataset = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y))
model = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 48), nn.Tanh(), nn.Linear(48, 10))
model.apply(initialise)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(6):
    for inputs, labels in DataLoader(dataset, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.3f}")
