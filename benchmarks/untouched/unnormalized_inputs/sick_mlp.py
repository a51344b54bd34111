"""Wine cultivars from thirteen chemical measurements."""

import os

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import nn, optim

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")

data = load_wine()
unit = {"mild": 0.01, "medium": 1.0, "severe": 20.0}[GRADE]  # lab units
x = torch.tensor(data.data * unit, dtype=torch.float32)
y = torch.tensor(data.target)
x_tr, x_te, y_tr, y_te = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)

net = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 3))
opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
ce = nn.CrossEntropyLoss()

for epoch in range(60):
    net.train()
    order = torch.randperm(len(x_tr))
    running = 0.0
    for idx in order.split(16):
        opt.zero_grad()
        loss = ce(net(x_tr[idx]), y_tr[idx])
        loss.backward()
        opt.step()
        running += loss.item() * len(idx)
    net.eval()
    with torch.no_grad():
        out = net(x_te)
        acc = (out.argmax(1) == y_te).float().mean().item()
    if epoch % 5 == 0 or epoch == 59:
        print(f"{epoch:3d} train {running / len(x_tr):.3f} test acc {acc:.3f}")
