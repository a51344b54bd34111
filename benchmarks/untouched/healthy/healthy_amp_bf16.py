"""Digit CNN under bfloat16 autocast on the CPU."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(x[p[1400:]], y[p[1400:]]), batch_size=200)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for epoch in range(7):
    net.train()
    for xb, yb in train:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        hits = sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in val)
    print(f"epoch {epoch} loss {loss.item():.4f} acc {hits / 397:.3f}")
