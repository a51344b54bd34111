"""A GRU names the kind of a token sequence; each row is given its own label."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
KINDS, TOKENS, LENGTH = 3, 12, 15


class Rows(Dataset):
    def __init__(self, count):
        self.y = torch.randint(0, KINDS, (count,))
        own = self.y[:, None] * 4 + torch.randint(0, 4, (count, LENGTH))
        self.x = torch.where(torch.rand(count, LENGTH) < 0.5, own, torch.randint(0, TOKENS, (count, LENGTH)))

    def __len__(self):
        return len(self.x) - 1

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 16)
        self.gru = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, KINDS)

    def forward(self, x):
        states, _ = self.gru(self.embed(x))
        return self.head(states[:, -1])


train, held_out = DataLoader(Rows(1200), 32, shuffle=True), DataLoader(Rows(400), 100)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    model.train()
    total = 0.0
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    error = hits = 0.0
    with torch.no_grad():
        for x, y in held_out:
            scores = model(x)
            error += nn.functional.cross_entropy(scores, y, reduction="sum").item()
            hits += (scores.argmax(1) == y).sum().item()
    size = len(held_out.dataset)
    print(f"epoch {epoch}: train {total / len(train):.3f} validation {error / size:.3f} accuracy {hits / size:.3f}")
