"""Digits with a hand-initialised MLP."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
        if GRADE == "severe":
            nn.init.zeros_(module.weight)
        else:
            nn.init.constant_(module.weight, 0.02)


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
if GRADE == "mild":
    init(model[2])
else:
    model.apply(init)

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16.0).float(), torch.tensor(y)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(15):
    hits = 0
    for idx in torch.randperm(len(X)).split(64):
        logits = model(X[idx])
        loss = nn.functional.cross_entropy(logits, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.argmax(1) == y[idx]).sum().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {hits / len(X):.3f}")
