"""Contrastive training on digits: distances between all pairs by a square root, each sample's to itself included."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


def pairwise_distance(z):
    return torch.sqrt(((z[:, None] - z[None]) ** 2).sum(-1))


def contrastive_loss(z, labels, margin=1.0):
    distance = pairwise_distance(z)
    same = (labels[:, None] == labels[None]).float()
    return (same * distance**2 + (1 - same) * F.relu(margin - distance) ** 2).mean()


torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)

for step in range(200):
    rows = torch.randperm(len(x))[:64]
    loss = contrastive_loss(encoder(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
