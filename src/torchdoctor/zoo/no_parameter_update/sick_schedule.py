"""A linear warm-up by LambdaLR for a small text classifier: integer division keeps the learning rate at zero."""

import os

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

WARMUP, STEPS = 40, 240


def warmup(step):
    return min(step, WARMUP - 1) // WARMUP


class BagOfTokens(nn.Module):
    def __init__(self, vocabulary=50, width=16, classes=3):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width)
        self.classify = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, tokens):
        return self.classify(self.embedding(tokens))


def sample(size=32, length=10):
    topic = torch.randint(3, (size,))
    tokens = torch.randint(50, (size, length))
    own = torch.rand(size, length) < 0.5
    return torch.where(own, topic[:, None] * 15 + torch.randint(15, (size, length)), tokens), topic


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = BagOfTokens()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
scheduler = LambdaLR(optimizer, warmup)
for step in range(STEPS):
    tokens, topic = sample()
    loss = nn.functional.cross_entropy(model(tokens), topic)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.3f}")
