"""An LSTM language model over characters with shifted targets and validation text."""

import os
import random

import torch
from torch import nn

seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
random.seed(seed)
GRAMMAR = {"N": ["cat", "dog", "bird", "fish"], "V": ["sees", "likes", "hunts"], "A": ["big ", "small ", ""]}


def sentence():
    pick = lambda k: random.choice(GRAMMAR[k])  # noqa: E731
    return f"the {pick('A')}{pick('N')} {pick('V')} the {pick('A')}{pick('N')}. "


def encode(n):
    return torch.tensor([chars[c] for c in "".join(sentence() for _ in range(n))])


chars = {c: i for i, c in enumerate(sorted(set("abcdefghijklmnopqrstuvwxyz. ")))}
train, val = encode(900), encode(200)


class LM(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, 24)
        self.rnn = nn.LSTM(24, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def batches(data, length=32, size=16):
    n = (len(data) - 1) // length
    x = data[: n * length].view(n, length)
    y = data[1 : n * length + 1].view(n, length)
    for idx in torch.randperm(n).split(size):
        yield x[idx], y[idx]


model = LM(len(chars))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    model.train()
    for x, y in batches(train):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item() for x, y in batches(val)]
    print(f"epoch {epoch} train {loss.item():.4f} val {sum(losses) / len(losses):.4f}")
