"""Next characters by a small LSTM whose output weights are set to the embedding's after every update."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = (
    "a fox once saw a crow fly off with a piece of cheese in its beak and settle on a branch of a tree. that is for "
    "me, as i am a fox, said he, and he walked up to the foot of the tree. good day, mistress crow, he cried, how "
    "well you are looking today: how glossy your feathers, how bright your eye. "
) * 15


class TiedModel(nn.Module):
    def __init__(self, vocabulary, width=48):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def tie(self):
        self.head.weight.data.copy_(self.embedding.weight.data)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    alphabet = sorted(set(TEXT))
    tokens = torch.tensor([alphabet.index(c) for c in TEXT])
    model = TiedModel(len(alphabet))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    nn.init.normal_(model.embedding.weight, std=0.1)
    model.tie()
    for step in range(200):
        starts = torch.randint(0, len(tokens) - 33, (16,))
        rows = torch.stack([tokens[s : s + 33] for s in starts])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.tie()
        if step % 25 == 24:
            print(f"step {step + 1}: {loss.item():.3f}")


main()
