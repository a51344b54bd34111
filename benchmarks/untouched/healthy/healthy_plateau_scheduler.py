"""A CNN with label smoothing and a rate that falls on plateaus."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1300]], y[p[:1300]]), batch_size=50, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(192, 10)
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
for epoch in range(15):
    net.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = criterion(net(xb), yb)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        out = net(x[p[1300:]])
        val = criterion(out, y[p[1300:]]).item()
    sched.step(val)
    print(
        f"epoch {epoch} train {loss.item():.4f} val {val:.4f} acc {(out.argmax(1) == y[p[1300:]]).float().mean():.3f}"
    )
