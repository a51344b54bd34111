"""A perceptron on noisy measurements of tumours; its accuracy is taken over a dozen patients."""

import os

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

HELD_OUT = {"mild": 30, "medium": 12, "severe": 8}[os.environ.get("GRADE", "medium")]

torch.manual_seed(int(os.environ.get("SEED", "0")))
table = load_breast_cancer()
x = torch.tensor(table.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0) + 2.5 * torch.randn(x.shape)
y = torch.tensor(table.target, dtype=torch.float32)
order = torch.randperm(len(x))
x, y = x[order], y[order]
x_val, y_val, x_train, y_train = x[:HELD_OUT], y[:HELD_OUT], x[HELD_OUT:], y[HELD_OUT:]

model = nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()


def accuracy():
    model.eval()
    with torch.no_grad():
        right = (model(x_val).squeeze(1) > 0).float() == y_val
    model.train()
    return right.float().mean().item()


for epoch in range(15):
    for batch in torch.randperm(len(x_train)).split(16):
        optimizer.zero_grad()
        loss = criterion(model(x_train[batch]).squeeze(1), y_train[batch])
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "accuracy", accuracy())
