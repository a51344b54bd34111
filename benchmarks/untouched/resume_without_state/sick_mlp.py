"""Training in two sessions with a checkpoint between them."""

import os
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 0.02, "medium": 0.15, "severe": 0.2}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
loader = DataLoader(TensorDataset(torch.tensor(X / 16).float(), torch.tensor(y)), batch_size=32, shuffle=True)


def build():
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.95)
    scheduler = ExponentialLR(optimizer, gamma=0.6)
    return model, optimizer, scheduler


def session(path, first, last):
    model, optimizer, scheduler = build()
    if path.exists():
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
    for epoch in range(first, last):
        total = 0.0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(xb)
        scheduler.step()
        print(f"epoch {epoch} loss {total / len(X):.5f} lr {scheduler.get_last_lr()[0]:.5f}")
    torch.save({"model": model.state_dict(), "epoch": last}, path)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    session(path, 0, 8)
    session(path, 8, 14)
