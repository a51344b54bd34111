"""A character transformer with tied input and output weights: the shared weights start with a spread of 0.02."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog while seven wizards quietly mix a potion of bright green ink. " * 30
CHARS = sorted(set(TEXT))
CODES = torch.tensor([CHARS.index(c) for c in TEXT])
CONTEXT, WIDTH = 32, 48


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(len(CHARS), WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(CHARS), bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, codes):
        length = codes.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.tokens(codes) + self.positions(torch.arange(length))
        return self.head(self.norm(self.blocks(x, mask=mask, is_causal=True)))


def sample(batch_size=24):
    starts = torch.randint(len(CODES) - CONTEXT - 1, (batch_size,))
    rows = torch.stack([CODES[s : s + CONTEXT + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = CharModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(700):
    codes, following = sample()
    logits = model(codes)
    loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.3f}")
