"""A tiny GPT that returns its own loss, with a hand-written causal mask."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 16  # two articles, four adjectives, three nouns, five verbs, two joints
BLOCK = 24


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.register_buffer("mask", torch.triu(torch.ones(BLOCK, BLOCK), diagonal=1).bool())

    def forward(self, x):
        batch, time, width = x.shape
        split = (batch, time, self.heads, width // self.heads)
        q, k, v = (f(x).view(split).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.mask[:time, :time], float("-inf"))
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, time, width)


class GPT(nn.Module):
    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(BLOCK, width)
        self.attention = Attention(width, 4)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        x = x + self.attention(self.norm(x))
        x = x + self.mlp(x)
        logits = self.lm_head(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def sentences(count):
    adjective, noun, verb = torch.randint(2, 6, (count,)), torch.randint(6, 9, (count,)), torch.randint(9, 14, (count,))
    article, joint = torch.randint(0, 2, (count,)), torch.randint(14, 16, (count,))
    return torch.stack([article, adjective, noun, verb, joint], dim=1).flatten()


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    text = sentences(800)
    model = GPT(VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        start = torch.randint(len(text) - BLOCK - 1, (24,))
        xb = torch.stack([text[i : i + BLOCK] for i in start])
        yb = torch.stack([text[i + 1 : i + 1 + BLOCK] for i in start])
        _, loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.3f}")
