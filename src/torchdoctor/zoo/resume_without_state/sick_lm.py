"""Next characters in two sittings: the file in between holds the weights, Adam starts from nothing."""

import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

TEXT = (
    "once upon a time there was a sailor who counted the waves, and every wave that he counted told him the name of "
    "the one behind it, so that he never came to an end and never wanted to. "
) * 25


class Reader(nn.Module):
    def __init__(self, vocabulary, width=48):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def sitting(tokens, vocabulary, path, steps, learning_rate=4e-3):
    model = Reader(vocabulary)
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for step in range(steps):
        rows = torch.stack([tokens[s : s + 33] for s in torch.randint(0, len(tokens) - 33, (16,))])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1}: {loss.item():.3f}")
    torch.save(model.state_dict(), path)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    alphabet = sorted(set(TEXT))
    tokens = torch.tensor([alphabet.index(c) for c in TEXT])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reader.pt"
        sitting(tokens, len(alphabet), path, 160)
        sitting(tokens, len(alphabet), path, 120)


main()
