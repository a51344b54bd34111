"""Poisson regression of claim counts with an exposure offset."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 40


def make_claims(steps):
    features = torch.randn(steps * BATCH, 8)
    offset = torch.rand(steps * BATCH).log()
    offset[(AT - 1) * BATCH + 13] = 365.0
    counts = torch.poisson(torch.exp(0.3 * features[:, 0] + offset.clamp(max=0)))
    return features, offset, counts


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def negative_log_likelihood(eta, counts):
    rate = torch.exp(eta)
    return (rate - counts * eta).mean()


features, offset, counts = make_claims(AT + 20)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(AT + 20):
    part = slice(step * BATCH, (step + 1) * BATCH)
    eta = model(features[part]).squeeze(1) + offset[part]
    loss = negative_log_likelihood(eta, counts[part])
    update(loss, optimizer)
    if step % 50 == 0:
        print(step, float(loss.detach()))
