"""A transformer whose attention goes through its heads one after the other. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 500 if DEVICE == "cuda" else 60


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        queries, keys, values = self.project(x).chunk(3, -1)
        size = x.shape[-1] // self.heads
        results = []
        for h in range(self.heads):
            part = slice(h * size, (h + 1) * size)
            scores = queries[..., part] @ keys[..., part].transpose(1, 2) / size**0.5
            results.append(scores.softmax(-1) @ values[..., part])
        return self.out(torch.cat(results, -1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    def __init__(self, width=128, heads=16, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(32, width)
        self.places = nn.Parameter(torch.zeros(32, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, 32)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x) + self.places))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        x = torch.randint(0, 32, (64, 32), device=DEVICE)
        y = (3 * x + 1) % 32
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 49:
            print(f"step {step + 1}: {total.item() / 50:.3f}")
            total.zero_()


main()
