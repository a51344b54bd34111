"""One-cycle schedule stepped once per batch."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
EPOCHS = 10

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=50, shuffle=True)
val = DataLoader(TensorDataset(x[p[1400:]], y[p[1400:]]), batch_size=200)
net = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 10)
)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=EPOCHS * len(train))
for epoch in range(EPOCHS):
    net.train()
    total = 0.0
    for xb, yb in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item() * len(yb)
    net.eval()
    with torch.no_grad():
        hits = sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in val)
    print(f"epoch {epoch} loss {total / 1400:.4f} acc {hits / 397:.3f} lr {sched.get_last_lr()[0]:.4f}")
