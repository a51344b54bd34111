"""A small transformer that sorts letters, cast to bfloat16 as a whole and fine-tuned at a small learning rate."""

import os

import torch
from torch import nn


class Sorter(nn.Module):
    def __init__(self, letters=12, length=6, width=64):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.position = nn.Parameter(torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, letters)

    def forward(self, words):
        return self.head(self.encoder(self.embed(words) + self.position))


def batches(count):
    for _ in range(count):
        words = torch.randint(0, 12, (64, 6))
        yield words, words.sort(dim=1).values


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = Sorter().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-5)
for step, (words, ordered) in enumerate(batches(250)):
    logits = model(words)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ordered.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
