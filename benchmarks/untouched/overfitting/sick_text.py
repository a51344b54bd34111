"""Sentiment-like classification of short token lists with an LSTM."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
SIZE = {"mild": 900, "medium": 250, "severe": 120}[os.environ.get("GRADE", "medium")]
VOCAB = 200
polarity = torch.randn(VOCAB)


def reviews(n):
    tokens = torch.randint(0, VOCAB, (n, 12))
    return tokens, (polarity[tokens].sum(1) > 0).long()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.lstm = nn.LSTM(32, 48, batch_first=True)
        self.out = nn.Linear(48, 2)

    def forward(self, t):
        return self.out(self.lstm(self.emb(t))[1][0][-1])


x, y = reviews(SIZE)
xv, yv = reviews(600)
model = Reader()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(40):
    model.train()
    total = 0.0
    for idx in torch.randperm(SIZE).split(25):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        out = model(xv)
        v, a = nn.functional.cross_entropy(out, yv).item(), (out.argmax(1) == yv).float().mean().item()
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1} train {total / SIZE:.4f} val {v:.4f} acc {a:.3f}")
