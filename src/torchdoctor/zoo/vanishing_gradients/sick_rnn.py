"""A recurrent net recalls the first symbol of a sequence at its end: the default weights forget it on the way."""

import os

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, CLASSES, NOISE = 30, 4, 2


class Recall(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(CLASSES + NOISE, 8)
        self.rnn = nn.RNN(8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, symbols):
        states, _ = self.rnn(self.embed(symbols))
        return self.out(states[:, -1])


def sequences(size):
    first = torch.randint(CLASSES, (size,))
    symbols = torch.randint(CLASSES, CLASSES + NOISE, (size, LENGTH))
    symbols[:, 0] = first
    return symbols, first


def main(steps=300):
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Recall()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        symbols, first = sequences(32)
        loss = F.cross_entropy(model(symbols), first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


main()
