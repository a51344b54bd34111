"""Transformer encoder with the padding mask the right way round."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
VOCAB, MAXLEN = 14, 16


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, t):
        pad = t == 0
        h = self.enc(self.emb(t), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.out((h * keep).sum(1) / keep.sum(1))


def batch(n):
    t = torch.randint(1, VOCAB, (n, MAXLEN))
    lengths = torch.randint(5, MAXLEN + 1, (n, 1))
    t = t.masked_fill(torch.arange(MAXLEN)[None] >= lengths, 0)
    return t, ((t == 1).any(1) & (t == 2).any(1) | (t == 3).any(1)).long()


model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
xv, yv = batch(500)
for step in range(300):
    model.train()
    t, y = batch(64)
    loss = nn.functional.cross_entropy(model(t), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            acc = (model(xv).argmax(1) == yv).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} acc {acc:.3f}")
