"""Five folds of a digits perceptron, a fresh network and optimizer each, at a rate of two."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
RATE = {"mild": 0.6, "medium": 2.0, "severe": 10.0}[GRADE]


def fit(x, y, epochs=2):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return model


torch.manual_seed(SEED)
digits = load_digits()
images, labels = torch.tensor(digits.data / 8 - 1, dtype=torch.float32), torch.tensor(digits.target)
scores = []
for train, test in KFold(5, shuffle=True, random_state=SEED).split(images):
    network = fit(images[train], labels[train])
    with torch.no_grad():
        scores.append((network(images[test]).argmax(1) == labels[test]).float().mean().item())
    print(f"fold {len(scores)}: {scores[-1]:.3f}")
