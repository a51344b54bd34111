"""Digit CNN; a part of the pictures comes from a scanner with a weak lamp."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
CONTRAST = {"mild": 0.35, "medium": 0.15, "severe": 0.05}[os.environ.get("GRADE", "medium")]

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
weak = torch.rand(len(x)) < 0.15
x[weak] = CONTRAST * x[weak]
x = x + 0.08 * torch.randn_like(x)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1200]], y[p[:1200]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(x[p[1200:]], y[p[1200:]]), batch_size=100)
weak_val = weak[p[1200:]]
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10)
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-4)
ce = nn.CrossEntropyLoss()
for epoch in range(20):
    net.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = ce(net(xb), yb)
        loss.backward()
        opt.step()
    net.eval()
    hit = []
    with torch.no_grad():
        for xb, yb in val:
            hit.append(net(xb).argmax(1) == yb)
    hit = torch.cat(hit).float()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {hit.mean():.3f} weak lamp {hit[weak_val].mean():.3f}")
