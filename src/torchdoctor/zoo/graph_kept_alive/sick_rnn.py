"""Models a long text in chunks with an LSTM whose state goes from chunk to chunk with its graph."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
TEXT = "she sells sea shells by the sea shore, and the shells that she sells are sea shells for sure. " * 60
VOCABULARY = sorted(set(TEXT))
IDS = torch.tensor([VOCABULARY.index(c) for c in TEXT])
ROWS, CHUNK = 8, 20


class CharLSTM(nn.Module):
    def __init__(self, symbols, width=64):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, ids, state):
        hidden, state = self.lstm(self.embed(ids), state)
        return self.head(hidden), state


model = CharLSTM(len(VOCABULARY))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
columns = len(IDS) // ROWS
text = IDS[: ROWS * columns].view(ROWS, columns)
for epoch in range(4):
    state = (torch.zeros(1, ROWS, 64), torch.zeros(1, ROWS, 64))
    for start in range(0, columns - CHUNK - 1, CHUNK):
        inputs, targets = text[:, start : start + CHUNK], text[:, start + 1 : start + CHUNK + 1]
        logits, state = model(inputs, state)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}")
