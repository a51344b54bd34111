"""Remembers the first symbol of a sequence with a GRU; gradients are clipped at the end of the loop."""

import os

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

SYMBOLS, LENGTH = 6, 20


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, SYMBOLS)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(hidden[:, -1])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Memory()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(200):
        ids = torch.randint(0, SYMBOLS, (48, LENGTH))
        optimizer.zero_grad()
        loss = criterion(model(ids), ids[:, -4])
        loss.backward()
        optimizer.step()
        clip_grad_norm_(model.parameters(), 1.0)
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
