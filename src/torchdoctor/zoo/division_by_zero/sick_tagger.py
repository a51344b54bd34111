"""A recurrent tagger that learns from labelled tokens only: a batch without labels has no loss to average."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocabulary=60, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, tags)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


def sentences(n, length=10):
    tokens = torch.randint(0, 60, (n, length))
    labelled = (torch.rand(n, length) < 0.3) & (torch.rand(n, 1) < 0.45)
    return tokens, tokens % 5, labelled


torch.manual_seed(int(os.environ.get("SEED", "0")))
tokens, tags, labelled = sentences(1500)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(2):
    for rows in torch.randperm(len(tokens)).split(6):
        logits = model(tokens[rows])
        each = F.cross_entropy(logits.flatten(0, 1), tags[rows].flatten(), reduction="none")
        loss = each[labelled[rows].flatten()].mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
