"""A post-norm transformer on a copy-and-reverse task, Adam from the first step at full rate."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LR = {"mild": 1e-3, "medium": 4e-3, "severe": 1e-2}[os.environ.get("GRADE", "medium")]
VOCAB, LENGTH, DIM = 12, 10, 64


class Reverser(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.5)
        layer = nn.TransformerEncoderLayer(DIM, 4, 128, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, t):
        return self.out(self.enc(self.tok(t) + self.pos))


model = Reverser()
opt = torch.optim.Adam(model.parameters(), lr=LR, betas=(0.9, 0.98))
for step in range(250):
    t = torch.randint(0, VOCAB, (48, LENGTH))
    loss = nn.functional.cross_entropy(model(t).flatten(0, 1), t.flip(1).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step < 10 or step % 25 == 0:
        print(step, f"{loss.item():.4f}")
