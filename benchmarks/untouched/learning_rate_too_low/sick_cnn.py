"""Digit CNN with Adam."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
CONFIG = {
    "lr": {"mild": 5e-5, "medium": 3e-6, "severe": 1e-7}[os.environ.get("GRADE", "medium")],
    "epochs": 8,
    "batch": 64,
}
d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=CONFIG["batch"], shuffle=True)
val = DataLoader(TensorDataset(x[p[1400:]], y[p[1400:]]), batch_size=200)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
opt = torch.optim.Adam(net.parameters(), lr=CONFIG["lr"])
for epoch in range(CONFIG["epochs"]):
    net.train()
    total = 0.0
    for xb, yb in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() * len(yb)
    net.eval()
    with torch.no_grad():
        hits = sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in val)
    print(f"epoch {epoch} loss {total / 1400:.4f} acc {hits / 397:.3f}")
