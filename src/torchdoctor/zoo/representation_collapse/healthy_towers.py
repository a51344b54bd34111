"""Sentences and pictures of the same thing are pulled together by two towers, and other pairs pushed apart."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
WORDS, THINGS = 80, 12

prototypes = torch.randn(THINGS, 36)
vocabulary = torch.randint(WORDS, (THINGS, 6))


def sample(n):
    thing = torch.randint(THINGS, (n,))
    picture = prototypes[thing] + 0.7 * torch.randn(n, 36)
    sentence = vocabulary[thing.unsqueeze(1), torch.randint(6, (n, 8))]
    return picture, sentence


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(nn.Linear(36, 64), nn.GELU(), nn.Linear(64, 24))
        self.words = nn.Embedding(WORDS, 32)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.sentence = nn.Linear(48, 24)

    def forward(self, picture, sentence):
        _, last = self.rnn(self.words(sentence))
        return self.picture(picture), self.sentence(last[0])


towers = Towers()
optimizer = torch.optim.Adam(towers.parameters(), lr=2e-3)


def loss_of(picture, sentence):
    a, b = towers(picture, sentence)
    scores = nn.functional.normalize(a, dim=1) @ nn.functional.normalize(b, dim=1).T / 0.1
    own = torch.arange(len(a))
    return (nn.functional.cross_entropy(scores, own) + nn.functional.cross_entropy(scores.T, own)) / 2


for step in range(400):
    loss = loss_of(*sample(48))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        with torch.no_grad():
            held_out = loss_of(*sample(200))
        print(f"step {step}: loss {loss.item():.4f}, held out {held_out.item():.4f}")
