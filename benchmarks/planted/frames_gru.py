"""A GRU over motion frames that are scaled to unit length."""

import os

import torch
import torch.nn.functional as F
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, LENGTH = 8, 6


class UnitFrames(nn.Module):
    def forward(self, x):
        length = x.norm(dim=-1, keepdim=True)
        inverse = 1.0 / length
        return x * inverse


class Motion(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit = UnitFrames()
        self.gru = nn.GRU(9, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        _, last = self.gru(self.unit(x))
        return self.head(last[0])


motions = torch.randn((AT + 20) * BATCH, LENGTH, 9)
labels = motions[:, -1, :4].argmax(dim=1)
order = torch.randperm(len(motions))
motions[order[(AT - 1) * BATCH + 6], 4] = 0.0
model = Motion()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for start in range(0, len(order), BATCH):
    rows = order[start : start + BATCH]
    loss = F.cross_entropy(model(motions[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if start % (50 * BATCH) == 0:
        print(start // BATCH, loss.item())
