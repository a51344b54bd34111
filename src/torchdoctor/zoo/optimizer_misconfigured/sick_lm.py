"""A recurrent model of letters trained with Adam whose eps outweighs every gradient."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the angry bear in the dark wood. " * 40
GRADE = os.environ.get("GRADE", "medium")
EPS = {"mild": 1e-2, "medium": 1.0, "severe": 100.0}[GRADE]


class Letters(nn.Module):
    def __init__(self, size, width=64):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, size)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embedding(tokens))
        return self.out(hidden)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(c) for c in TEXT])
    model = Letters(len(letters))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=EPS)
    for step in range(250):
        starts = torch.randint(0, len(data) - 33, (16,))
        window = torch.stack([data[s : s + 33] for s in starts])
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
