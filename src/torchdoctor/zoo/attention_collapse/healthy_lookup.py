"""A value is looked up by its key with attention."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
ITEMS, WIDTH, TEMPERATURE = 10, 16, 1.0


def sample(n):
    keys = F.normalize(torch.randn(n, ITEMS, WIDTH), dim=2)
    values = torch.randn(n, ITEMS, 4)
    wanted = torch.randint(ITEMS, (n,))
    question = keys[torch.arange(n), wanted] + 0.05 * torch.randn(n, WIDTH)
    asked = F.pad(question, (0, 4)).unsqueeze(1)
    return torch.cat([asked, torch.cat([keys, values], 2)], 1), values[torch.arange(n), wanted]


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask = nn.Linear(WIDTH, 32)
        self.index = nn.Linear(WIDTH, 32)
        self.read = nn.Linear(4, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, table):
        question, keys, values = table[:, 0, :WIDTH], table[:, 1:, :WIDTH], table[:, 1:, WIDTH:]
        scores = torch.bmm(self.ask(question).unsqueeze(1), self.index(keys).transpose(1, 2)) / TEMPERATURE
        found = torch.bmm(scores.softmax(dim=2), torch.tanh(self.read(values)))
        return self.out(found.squeeze(1))


lookup = Lookup()
optimizer = torch.optim.Adam(lookup.parameters(), lr=2e-3)
for step in range(600):
    table, answer = sample(64)
    loss = F.mse_loss(lookup(table), answer)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        lookup.eval()
        with torch.no_grad():
            table, answer = sample(256)
            held_out = F.mse_loss(lookup(table), answer)
        lookup.train()
        print(f"step {step}: train {loss.item():.3f}, held out {held_out.item():.3f}")
