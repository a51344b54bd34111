"""A recurrent tagger labels every position of a sequence: it returns scores."""

import os

import torch
import torch.nn.functional as F
from torch import nn

SYMBOLS, TAGS, LENGTH = 12, 4, 20


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 24)
        self.gru = nn.GRU(24, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, TAGS)

    def forward(self, symbols):
        states, _ = self.gru(self.embed(symbols))
        return self.out(states)


def make_batch(size, generator):
    symbols = torch.randint(SYMBOLS, (size, LENGTH), generator=generator)
    tags = (symbols + symbols.roll(1, 1)) % TAGS
    return symbols, tags


class TaggerTraining:
    def __init__(self):
        seed = int(os.environ.get("SEED", "0"))
        torch.manual_seed(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = Tagger()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def run(self, steps):
        for step in range(steps):
            symbols, tags = make_batch(32, self.generator)
            scores = self.model(symbols)
            loss = F.cross_entropy(scores.transpose(1, 2), tags)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.3f}")


TaggerTraining().run(250)
