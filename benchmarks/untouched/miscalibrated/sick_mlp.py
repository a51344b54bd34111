"""Four overlapping classes, trained for long."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
EPOCHS = {"mild": 25, "medium": 80, "severe": 160}[os.environ.get("GRADE", "medium")]

centres = 1.5 * torch.randn(4, 20)


def draw(n):
    k = torch.randint(0, 4, (n,))
    return (centres[k] + 2.4 * torch.randn(n, 20)) / 2.8, k


x, y = draw(600)
xv, yv = draw(1500)
model = nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()
for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for idx in torch.randperm(len(x)).split(50):
        loss = ce(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        out = model(xv)
        conf, pred = out.softmax(1).max(1)
    if epoch % 8 == 0 or epoch == EPOCHS - 1:
        acc = (pred == yv).float().mean().item()
        print(
            f"epoch {epoch} train {total / len(x):.4f} val {ce(out, yv):.4f} acc {acc:.3f} confidence {conf.mean():.3f}"
        )
