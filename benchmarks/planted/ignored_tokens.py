"""An LSTM tagger; positions without a tag carry zero weight in the loss."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, LENGTH, TAGS, WORDS = 6, 8, 4, 30


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 12)
        self.lstm = nn.LSTM(12, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, TAGS)

    def forward(self, words):
        return self.head(self.lstm(self.embed(words))[0])


def weighted_mean(losses, weights):
    total = (losses * weights).sum()
    return total / weights.sum()


rows = (AT + 20) * BATCH
words = torch.randint(WORDS, (rows, LENGTH))
tags = words % TAGS
tagged = (torch.rand(rows, LENGTH) > 0.2).float()
order = torch.randperm(rows)
tagged[order[(AT - 1) * BATCH : AT * BATCH]] = 0.0
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(words, tags, tagged), batch_size=BATCH, sampler=order.tolist())
for step, (x, y, weights) in enumerate(loader, 1):
    losses = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
    loss = weighted_mean(losses, weights.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.3f}")
