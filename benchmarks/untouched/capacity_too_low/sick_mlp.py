"""Twelve clusters in ten dimensions, a tiny classifier for a microcontroller."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
HIDDEN = {"mild": 4, "medium": 2, "severe": 1}[os.environ.get("GRADE", "medium")]

centres = 1.5 * torch.randn(12, 10)


def clusters(n):
    label = torch.randint(0, 12, (n,))
    return (centres[label] + 0.6 * torch.randn(n, 10)) / 1.6, label


train = TensorDataset(*clusters(3000))
x_val, y_val = clusters(1000)
model = nn.Sequential(nn.Linear(10, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 12))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
criterion = nn.CrossEntropyLoss()
for epoch in range(25):
    model.train()
    seen = hits = 0
    for x, y in DataLoader(train, batch_size=100, shuffle=True):
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (out.argmax(1) == y).sum().item()
        seen += len(y)
    model.eval()
    with torch.no_grad():
        out = model(x_val)
        val_loss, val_acc = criterion(out, y_val).item(), (out.argmax(1) == y_val).float().mean().item()
    print(f"epoch {epoch} train {loss.item():.3f}/{hits / seen:.3f} val {val_loss:.3f}/{val_acc:.3f}")
