"""A small transformer reverses strings of tokens; its attention scores are multiplied by what should divide them."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

GRADE = os.environ.get("GRADE", "medium")
TOKENS, LENGTH, WIDTH, HEADS = 24, 16, 48, 4


def scale(width):
    return {"mild": 1.0, "medium": math.sqrt(WIDTH), "severe": float(WIDTH)}[GRADE]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * scale(WIDTH // HEADS)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Reverser(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.out = nn.Linear(WIDTH, TOKENS)

    def forward(self, x):
        return self.out(self.blocks(self.tokens(x) + self.positions))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    held_out = torch.randint(TOKENS, (128, LENGTH))
    for step in range(260):
        x = torch.randint(TOKENS, (32, LENGTH))
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 65 == 64:
            model.eval()
            with torch.no_grad():
                val_loss = F.cross_entropy(model(held_out).flatten(0, 1), held_out.flip(1).flatten())
            model.train()
            print(f"step {step}: train {loss.item():.3f} validation {val_loss.item():.3f}")


main()
