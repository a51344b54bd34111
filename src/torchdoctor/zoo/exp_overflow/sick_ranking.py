"""Pairs of documents ranked by a learned score: the logistic loss is written out as log(1 + exp(-difference))."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
features = torch.randn(1500, 12)
relevance = features @ torch.randn(12) + 0.5 * torch.randn(1500)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(12, 64)
        self.score = nn.Linear(64, 1)
        self.sharpness = nn.Parameter(torch.tensor(300.0))

    def forward(self, x):
        return self.sharpness * torch.tanh(self.score(torch.relu(self.hidden(x)))).squeeze(-1)


def pair_loss(better, worse):
    return torch.log(1 + torch.exp(-(better - worse))).mean()


scorer = Scorer()
optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-3)
for step in range(300):
    i, j = torch.randint(0, 1500, (2, 64))
    first = torch.where(relevance[i] > relevance[j], i, j)
    second = torch.where(relevance[i] > relevance[j], j, i)
    loss = pair_loss(scorer(features[first]), scorer(features[second]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
