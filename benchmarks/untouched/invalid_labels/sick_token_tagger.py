"""A GRU that tags tokens of padded sentences."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")
PAD = -100


def corpus(n=400, length=12, vocab=40):
    tokens = torch.randint(1, vocab, (n, length))
    tags = tokens % 4
    lengths = torch.randint(4, length + 1, (n,))
    positions = torch.arange(length)
    padding = positions[None, :] >= lengths[:, None]
    tokens = tokens.masked_fill(padding, 0)
    # annotation files cover only a part of the corpus; what is not annotated is not scored
    covered = {"mild": 0.1, "medium": 0.02, "severe": 0.0}[GRADE]
    annotated = torch.rand(n, 1) < covered
    tags = tags.masked_fill(padding | ~annotated, PAD)
    return tokens, tags


class Tagger(nn.Module):
    def __init__(self, vocab=40, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, tags)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


tokens, tags = corpus()
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for epoch in range(8):
    for batch in torch.randperm(len(tokens)).split(16):
        optimizer.zero_grad()
        logits = tagger(tokens[batch])
        loss = criterion(logits.flatten(0, 1), tags[batch].flatten())
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
