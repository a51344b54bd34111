"""Handwritten digits by a network of sine units, all training images in one batch."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

OMEGA = 1.0


class SineNetwork(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        x = torch.sin(OMEGA * self.first(x))
        return self.out(torch.sin(OMEGA * self.second(x)))


torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
order = torch.randperm(len(digits.data))
images = torch.tensor(digits.data, dtype=torch.float32)[order] / 8 - 1
labels = torch.tensor(digits.target)[order]
model = SineNetwork()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
for step in range(200):
    model.train()
    loss = F.cross_entropy(model(images[:600]), labels[:600], label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            held_out = F.cross_entropy(model(images[600:]), labels[600:], label_smoothing=0.1)
        print(f"step {step}: {loss.item():.3f}, held out {held_out.item():.3f}")
