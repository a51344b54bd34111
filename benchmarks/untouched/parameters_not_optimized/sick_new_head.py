"""A classifier whose head is exchanged for a new task before training."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 48), nn.ReLU())
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        return self.head(self.body(x))


def fit(model, optimizer, x, y, epochs, tag):
    for epoch in range(epochs):
        for idx in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(tag, epoch, f"{loss.item():.4f}")


x, digit = load_digits(return_X_y=True)
x = torch.tensor(x / 16.0).float()
digit = torch.tensor(digit)

model = Net(classes=2)
optimizer = torch.optim.SGD(
    [{"params": model.body.parameters(), "lr": 1e-3}, {"params": model.head.parameters()}], lr=0.1
)
model.head = nn.Linear(48, 10)
fit(model, optimizer, x, digit, 15, "digits")
