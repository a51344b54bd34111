"""A character model trained by gradient descent on the sum of the losses of all characters."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "how much wood would a woodchuck chuck if a woodchuck could chuck wood? as much wood as it could. " * 30
LETTERS = sorted(set(TEXT))
LENGTH = 25


class CharRNN(nn.Module):
    def __init__(self, symbols, width=48):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


torch.manual_seed(int(os.environ.get("SEED", "0")))
data = torch.tensor([LETTERS.index(c) for c in TEXT])
model = CharRNN(len(LETTERS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(150):
    at = torch.randint(0, len(data) - LENGTH - 1, (16,))
    x, y = (torch.stack([data[i + d : i + d + LENGTH] for i in at]) for d in (0, 1))
    log_probabilities = F.log_softmax(model(x), dim=-1)
    loss = -log_probabilities.gather(2, y.unsqueeze(2)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
