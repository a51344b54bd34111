"""A learning-rate range test by hand, then training at the rate it suggests."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
p = torch.randperm(len(X))
tr, va = p[:1400], p[1400:]
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
loss_fn = nn.CrossEntropyLoss()


def range_test(steps=60, low=1e-4, high=1.0):
    probe = copy.deepcopy(model)
    opt = torch.optim.SGD(probe.parameters(), lr=low, momentum=0.9)
    smooth, best, chosen = None, float("inf"), low
    for i in range(steps):
        lr = low * (high / low) ** (i / (steps - 1))
        opt.param_groups[0]["lr"] = lr
        idx = tr[torch.randint(0, len(tr), (64,))]
        loss = loss_fn(probe(X[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        smooth = loss.item() if smooth is None else 0.8 * smooth + 0.2 * loss.item()
        if smooth < best:
            best, chosen = smooth, lr
        if smooth > 2 * best:
            break
    return min(chosen / 5, 0.1)


lr = range_test()
print("chosen", lr)
opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
for epoch in range(12):
    model.train()
    for idx in tr[torch.randperm(len(tr))].split(64):
        loss = loss_fn(model(X[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        acc = (model(X[va]).argmax(1) == y[va]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")
