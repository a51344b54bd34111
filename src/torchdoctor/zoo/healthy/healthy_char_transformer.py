"""A small character language model with dropout, warm-up, cosine decay and clipping."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = (
    "the quick brown fox jumps over the lazy dog while the small cat sleeps in the warm sun and dreams of fish. "
    "a good doctor asks first, looks closely, and only then says what is wrong and what to do about it. "
) * 40
CONTEXT, WIDTH, STEPS = 32, 48, 220


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, 4, c // 4).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attention = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(c // 4) + self.mask[:t, :t], dim=-1)
        x = x + self.proj((attention @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.tokens, self.places = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, symbols, bias=False)

    def forward(self, idx):
        x = self.tokens(idx) + self.places(torch.arange(idx.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    symbols = sorted(set(TEXT))
    data = torch.tensor([symbols.index(c) for c in TEXT])
    model = CharModel(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm = 30
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * max(0, s - warm) / (STEPS - warm)))
    )
    for step in range(STEPS):
        at = torch.randint(0, len(data) - CONTEXT - 1, (16,))
        x = torch.stack([data[i : i + CONTEXT] for i in at])
        y = torch.stack([data[i + 1 : i + CONTEXT + 1] for i in at])
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
