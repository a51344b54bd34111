"""Five-fold cross-validation of a small classifier."""

import os

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
X, y = load_breast_cancer(return_X_y=True)


def train_fold(a, ya, b, yb):
    mean, std = a.mean(0), a.std(0)
    a, b = (torch.tensor((v - mean) / std).float() for v in (a, b))
    ya, yb = torch.tensor(ya), torch.tensor(yb)
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(12):
        model.train()
        for idx in torch.randperm(len(a)).split(32):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(a[idx]), ya[idx])
            loss.backward()
            opt.step()
    model.eval()
    with torch.no_grad():
        return loss.item(), (model(b).argmax(1) == yb).float().mean().item()


scores = []
for k, (i, j) in enumerate(StratifiedKFold(5, shuffle=True, random_state=SEED).split(X, y)):
    loss, acc = train_fold(X[i], y[i], X[j], y[j])
    scores.append(acc)
    print(f"fold {k} loss {loss:.4f} acc {acc:.3f}")
print(f"mean {np.mean(scores):.3f} +- {np.std(scores):.3f}")
