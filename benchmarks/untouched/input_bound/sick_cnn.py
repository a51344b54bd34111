"""Digit CNN with a heavy per-sample preprocessing in the dataset."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
ROUNDS = {"mild": 6, "medium": 30, "severe": 55}[os.environ.get("GRADE", "medium")]


class Filtered(Dataset):
    def __init__(self, n=640):
        d = load_digits()
        self.images, self.labels = d.images[:n] / 16, d.target[:n]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i]
        for _ in range(ROUNDS):  # anisotropic smoothing
            up, down = np.roll(img, 1, 0), np.roll(img, -1, 0)
            left, right = np.roll(img, 1, 1), np.roll(img, -1, 1)
            lap = sum(np.exp(-((n - img) ** 2) / 0.05) * (n - img) for n in (up, down, left, right))
            img = img + 0.002 * lap
        return torch.tensor(img, dtype=torch.float32).unsqueeze(0), int(self.labels[i])


loader = DataLoader(Filtered(), batch_size=32, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(4):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    print(f"epoch {epoch} loss {total:.4f}")
