"""A small transformer on sensor sequences, with attention written out."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, LENGTH, WIDTH = 8, 12, 16


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        weights = torch.exp(scores)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights @ self.value(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = self.norm(x + self.attention(x))
        return x + self.feed(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(WIDTH), Block(WIDTH))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.blocks(x).mean(dim=1))


steps = AT + 20
signals = torch.randn(steps * BATCH, LENGTH, WIDTH)
labels = signals[:, :, :3].mean(dim=1).argmax(dim=1)
order = torch.randperm(len(signals))
signals[order[(AT - 1) * BATCH + 3]] *= 1000
loader = DataLoader(TensorDataset(signals, labels), batch_size=BATCH, sampler=order.tolist())
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}, loss {loss.item():.4f}")
