"""Character model of a made-up language with an LSTM."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
SYLLABLES = ["ka", "to", "mi", "re", "su", "no", "ha", "li"]
follow = torch.softmax(3 * torch.randn(8, 8), dim=1)


def text(n):
    s, out = 0, []
    for _ in range(n):
        s = torch.multinomial(follow[s], 1).item()
        out.append(SYLLABLES[s])
    return "".join(out)


corpus = text(3000)
chars = sorted(set(corpus))
data = torch.tensor([chars.index(c) for c in corpus])


class CharLM(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


def get_batch(size=16, length=24):
    start = torch.randint(0, len(data) - length - 1, (size,))
    x = torch.stack([data[i : i + length] for i in start])
    y = torch.stack([data[i + 1 : i + length + 1] for i in start])
    return x, y


model = CharLM(len(chars))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(400):
    x, y = get_batch()
    loss = loss_fn(model(x).transpose(1, 2), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f}")
