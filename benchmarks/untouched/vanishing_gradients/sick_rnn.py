"""A plain recurrent network that must recall the first symbol of a sequence."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LENGTH = {"mild": 25, "medium": 60, "severe": 120}[os.environ.get("GRADE", "medium")]
SYMBOLS = 6


class Recall(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.RNN(SYMBOLS, hidden, batch_first=True)
        self.out = nn.Linear(hidden, SYMBOLS)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states[:, -1])


def batch(n=32):
    seq = torch.randint(0, SYMBOLS, (n, LENGTH))
    return F.one_hot(seq, SYMBOLS).float(), seq[:, 0]


model = Recall()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
running = None
for step in range(300):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
    if step % 50 == 49:
        print(f"step {step + 1} loss {running:.4f}")
