"""A wide-and-deep regressor on the diabetes table: both branches are used."""

import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn


class WideAndDeep(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 16))
        self.deep = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 16))
        self.mix = nn.Linear(16, 1)

    def forward(self, x):
        hidden = self.wide(x)
        hidden = hidden + self.deep(x)
        return self.mix(torch.relu(hidden)).squeeze(1)


torch.manual_seed(int(os.environ.get("SEED", "1")))
table, progress = load_diabetes(return_X_y=True)
x = torch.tensor(table * 21, dtype=torch.float32)
y = torch.tensor((progress - progress.mean()) / progress.std(), dtype=torch.float32)

model = WideAndDeep(x.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(40):
    order = torch.randperm(len(x))
    losses = []
    for rows in order.split(64):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if epoch % 10 == 0:
        print(epoch, sum(losses) / len(losses))
