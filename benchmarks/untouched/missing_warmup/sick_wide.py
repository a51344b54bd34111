"""A wide network on digits with Adam."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 1e-2, "medium": 3e-2, "severe": 6e-2}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X = torch.tensor((X - X.mean()) / X.std()).float()
loader = DataLoader(TensorDataset(X, torch.tensor(y)), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
steps = 6 * len(loader)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
step = 0
for _ in range(6):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step < 12 or step % 20 == 0:
            print(step, f"{loss.item():.4f}")
        step += 1
