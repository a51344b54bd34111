"""Sentence classification by a transformer with a padding mask."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, LENGTH, WIDTH, WORDS, PAD = 8, 10, 16, 40, 0


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, padding):
        query, key, value = self.project(x).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) / WIDTH**0.5
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return weights @ value


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.ModuleList(SelfAttention() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.embed(tokens)
        for number, attention in enumerate(self.attention):
            x = self.norms[number](x + self.dropout(attention(x, padding)))
        return self.head(x.mean(dim=1))


rows = (AT + 20) * BATCH
tokens = torch.randint(1, WORDS, (rows, LENGTH))
lengths = torch.randint(2, LENGTH + 1, (rows,))
order = torch.randperm(rows)
lengths[order[(AT - 1) * BATCH + 1]] = 0
tokens[torch.arange(LENGTH) >= lengths[:, None]] = PAD
labels = (tokens > WORDS // 2).float().mean(dim=1).gt(0.3).long()
loader = DataLoader(TensorDataset(tokens, labels), BATCH, sampler=order.tolist())
model = Sentences()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader, 1):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.3f}")
