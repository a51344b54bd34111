"""Metric learning: pairwise distances of embeddings should follow the class."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def distances(e):
    diff = e[:, None, :] - e[None, :, :]
    return (diff**2).sum(-1).sqrt()


def contrastive(d, same, margin=1.0):
    pull = d[same].pow(2).mean()
    push = torch.relu(margin - d[~same]).pow(2).mean()
    return pull + push


for step in range(200):
    idx = torch.randint(0, len(X), (48,))
    d = distances(net(X[idx]))
    loss = contrastive(d, y[idx][:, None] == y[idx][None, :])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step < 3:
        print(step, f"{loss.item():.4f}")
