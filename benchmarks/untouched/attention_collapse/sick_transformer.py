"""Self-attention written by hand, on a counting task."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scale = math.sqrt(d // self.heads)
        scores = q @ k.transpose(-2, -1)
        if GRADE == "mild":
            scores = scores * 3
        elif GRADE == "medium":
            scores = scores * scale**2
        else:
            scores = scores * scale**4
        weights = F.softmax(scores, dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class Counter(nn.Module):
    def __init__(self, vocab=8, length=20, dim=64):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks = nn.Sequential(Block(dim, 2), Block(dim, 2))
        self.head = nn.Linear(dim, length + 1)

    def forward(self, t):
        return self.head(self.blocks(self.tok(t) + self.pos))


def batch(n=48):
    """For each token: how often does the same token occur in the sequence?"""
    t = torch.randint(0, 8, (n, 20))
    return t, (t[:, :, None] == t[:, None, :]).sum(-1)


model = Counter()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(250):
    t, y = batch()
    logits = model(t)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f} acc {(logits.argmax(-1) == y).float().mean():.3f}")
