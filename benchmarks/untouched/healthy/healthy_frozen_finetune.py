"""Pretrain a CNN on even and odd, then train a new head on its frozen features."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
order = torch.randperm(len(x))
x, y = x[order], y[order]
body = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
)


def fit(model, params, target, epochs, lr, frozen=None):
    optimizer = torch.optim.Adam(params, lr=lr)
    for epoch in range(epochs):
        model.train()
        if frozen is not None:
            frozen.eval()
        for idx in torch.randperm(1400).split(50):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[idx]), target[idx])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            acc = (model(x[1400:]).argmax(1) == target[1400:]).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")


first = nn.Sequential(body, nn.Linear(512, 5))
fit(first, first.parameters(), y // 2, 4, 2e-3)

for p in body.parameters():
    p.requires_grad = False
second = nn.Sequential(body, nn.Linear(512, 10))
fit(second, second[1].parameters(), y, 6, 3e-3, frozen=body)
