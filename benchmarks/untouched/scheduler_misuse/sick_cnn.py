"""Digit CNN with a step schedule."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
GAMMA = {"mild": 0.7, "medium": 0.5, "severe": 0.1}[os.environ.get("GRADE", "medium")]

d = load_digits()
x, y = torch.tensor(d.images).float().unsqueeze(1) / 16, torch.tensor(d.target)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)

net = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(192, 48),
    nn.ReLU(),
    nn.Linear(48, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scheduler = StepLR(optimizer, step_size=5, gamma=GAMMA)  # every 5 epochs

for epoch in range(15):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(xb), yb)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(xb)
    print(f"epoch {epoch} loss {total / len(x):.4f} lr {scheduler.get_last_lr()[0]:.2e}")
