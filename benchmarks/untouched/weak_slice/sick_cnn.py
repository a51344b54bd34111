"""Digit CNN; the pictures of one digit come from a worn-out scanner."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
FADE = {"mild": 0.7, "medium": 1.3, "severe": 2.0}[os.environ.get("GRADE", "medium")]

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
worn = y == 8
other = x[torch.randint(0, len(x), (int(worn.sum()),))]
mix = min(0.45 * FADE, 0.8)
x[worn] = (1 - mix) * x[worn] + mix * other + 0.2 * FADE * torch.randn_like(x[worn])
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1200]], y[p[:1200]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(x[p[1200:]], y[p[1200:]]), batch_size=100)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10)
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-4)
ce = nn.CrossEntropyLoss()
for epoch in range(12):
    net.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = ce(net(xb), yb)
        loss.backward()
        opt.step()
    net.eval()
    preds, truth = [], []
    with torch.no_grad():
        for xb, yb in val:
            preds.append(net(xb).argmax(1))
            truth.append(yb)
    preds, truth = torch.cat(preds), torch.cat(truth)
    recall8 = (preds[truth == 8] == 8).float().mean()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {(preds == truth).float().mean():.3f} recall of 8: {recall8:.3f}")
