"""Maximum likelihood written by hand for a tagger of short sequences."""

import os

import torch
from torch import nn

SYMBOLS, TAGS, LENGTH = 30, 5, 12


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, TAGS)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return torch.log_softmax(self.head(hidden), dim=-1)


def make_batch(count=64):
    ids = torch.randint(0, SYMBOLS, (count, LENGTH))
    before = torch.cat([ids[:, :1], ids[:, :-1]], dim=1)
    return ids, (ids + before) % TAGS


def log_likelihood(log_probabilities, tags):
    return log_probabilities.gather(2, tags.unsqueeze(2)).mean()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(150):
        ids, tags = make_batch()
        loss = -log_likelihood(model(ids), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
