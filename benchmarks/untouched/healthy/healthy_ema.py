"""Digits with an averaged copy of the weights that is swapped in for validation."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class EMA:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.avg = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.avg[k].mul_(self.decay).add_(v, alpha=1 - self.decay)

    @torch.no_grad()
    def swap_in(self, model):
        for k, v in model.named_parameters():
            self.backup[k] = v.detach().clone()
            v.copy_(self.avg[k])

    @torch.no_grad()
    def swap_out(self, model):
        for k, v in model.named_parameters():
            v.copy_(self.backup[k])


X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
train = DataLoader(TensorDataset(X[perm[:1400]], y[perm[:1400]]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
ema = EMA(model)
for epoch in range(12):
    model.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        ema.update(model)
    ema.swap_in(model)
    model.eval()
    with torch.no_grad():
        out = model(X[perm[1400:]])
        acc = (out.argmax(1) == y[perm[1400:]]).float().mean().item()
    ema.swap_out(model)
    print(f"epoch {epoch} loss {loss.item():.4f} averaged acc {acc:.3f}")
