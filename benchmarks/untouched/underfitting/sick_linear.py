"""Logistic regression on rings of points."""

import os

import torch
from sklearn.datasets import make_gaussian_quantiles
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)

X, y = make_gaussian_quantiles(n_samples=3000, n_features=4, n_classes=3, random_state=SEED)
X, y = torch.tensor(X).float(), torch.tensor(y)
X = X + 0.6 * torch.randn(3, 4)[y]
X = (X - X.mean(0)) / X.std(0)
perm = torch.randperm(3000)
tr, va = perm[:2200], perm[2200:]
model = nn.Linear(4, 3)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(15):
    for idx in tr[torch.randperm(len(tr))].split(50):
        loss = nn.functional.cross_entropy(model(X[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        a = nn.functional.cross_entropy(model(X[tr]), y[tr]).item()
        out = model(X[va])
        b = nn.functional.cross_entropy(out, y[va]).item()
        acc = (out.argmax(1) == y[va]).float().mean().item()
    print(f"epoch {epoch} train {a:.4f} val {b:.4f} acc {acc:.3f}")
