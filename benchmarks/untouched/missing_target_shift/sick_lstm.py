"""Character language model on a generated text with an LSTM."""

import os
import random

import torch
from torch import nn

seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
random.seed(seed)
WORDS = ["the", "small", "old", "green", "cat", "dog", "bird", "tree", "sees", "finds", "likes", "eats", "and"]
text = " ".join(random.choice(WORDS) for _ in range(3000))
vocab = sorted(set(text))
ids = torch.tensor([vocab.index(c) for c in text])


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), 24)
        self.rnn = nn.LSTM(24, 48, batch_first=True)
        self.decode = nn.Linear(48, len(vocab))

    def forward(self, x):
        h, _ = self.rnn(self.embed(x))
        return self.decode(h)


def batch(size=24, length=32):
    starts = torch.randint(0, len(ids) - length, (size,)).tolist()
    x = torch.stack([ids[s : s + length] for s in starts])
    y = torch.stack([ids[s : s + length] for s in starts])
    return x, y


lm = LM()
optimizer = torch.optim.Adam(lm.parameters(), lr=3e-3)
for step in range(250):
    x, y = batch()
    loss = nn.functional.cross_entropy(lm(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} ppl {loss.exp().item():.3f}")
