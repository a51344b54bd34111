"""A convolutional network on digits whose weights are clamped to a narrow band after every step."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

GRADE = os.environ.get("GRADE", "medium")
LIMIT = {"mild": 0.05, "medium": 0.01, "severe": 0.005}[GRADE]

torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(5):
    for rows in torch.randperm(len(images)).split(64):
        loss = nn.functional.cross_entropy(net(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p in net.parameters():
                p.clamp_(-LIMIT, LIMIT)
    print(epoch, f"{loss.item():.3f}")
