"""A recurrent model of letters that is trained for as long as it needs."""

import os

import torch
from torch import nn

TEXT = "it was the best of times, it was the worst of times, it was the age of wisdom, it was the age of folly. " * 30
STEPS = 300


class Letters(nn.Module):
    def __init__(self, size, width=48):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, size)

    def forward(self, tokens):
        return self.out(self.rnn(self.embedding(tokens))[0])


torch.manual_seed(int(os.environ.get("SEED", "0")))
letters = sorted(set(TEXT))
data = torch.tensor([letters.index(c) for c in TEXT])
model = Letters(len(letters))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(STEPS):
    starts = torch.randint(0, len(data) - 25, (32,))
    window = torch.stack([data[s : s + 25] for s in starts])
    loss = nn.functional.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, f"{loss.item():.3f}")
