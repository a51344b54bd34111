"""A small character transformer that predicts the next character."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = (
    "it was a bright cold day in april, and the clocks were striking thirteen. the hallway smelt of boiled cabbage. "
    "outside, even through the shut window, the world looked cold. little eddies of wind were whirling dust. "
) * 20
CONTEXT, WIDTH = 32, 48


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, 4, c // 4).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.tokens, self.places = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, symbols)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def get_batch(data, size=16):
    at = torch.randint(0, len(data) - CONTEXT - 1, (size,))
    x = torch.stack([data[i : i + CONTEXT] for i in at])
    y = torch.stack([data[i + 1 : i + CONTEXT + 1] for i in at])
    return x, y


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    symbols = sorted(set(TEXT))
    data = torch.tensor([symbols.index(c) for c in TEXT])
    train, held_out = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = Model(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(180):
        x, y = get_batch(train)
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, len(symbols)), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 45 == 44:
            model.eval()
            with torch.no_grad():
                x, y = get_batch(held_out, 64)
                validation = F.cross_entropy(model(x).view(-1, len(symbols)), y.view(-1))
            model.train()
            print(f"step {step}: loss {loss.item():.3f}, validation {validation.item():.3f}")


if __name__ == "__main__":
    main()
