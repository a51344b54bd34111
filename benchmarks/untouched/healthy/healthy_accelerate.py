"""Digits with Accelerate, accumulation and a scheduler."""

import os

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
p = torch.randperm(len(X))
train = DataLoader(TensorDataset(X[p[:1408]], y[p[:1408]]), batch_size=32, shuffle=True)
val = DataLoader(TensorDataset(X[p[1408:]], y[p[1408:]]), batch_size=128)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)
for epoch in range(8):
    model.train()
    for xb, yb in train:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(xb), yb)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    hits = 0
    with torch.no_grad():
        for xb, yb in val:
            pred, truth = accelerator.gather_for_metrics((model(xb).argmax(1), yb))
            hits += (pred == truth).sum().item()
    accelerator.print(f"epoch {epoch} loss {loss.item():.4f} acc {hits / 389:.3f}")
