"""A tiny sequence classifier with automatic mixed precision."""

import os
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(int(os.environ.get("SEED", "0")))
USE_AMP = True


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(20, dim)
        self.enc = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(dim, 2)

    def forward(self, t):
        return self.out(self.enc(self.emb(t)).mean(1))


model = Model()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    tokens = torch.randint(0, 20, (64, 12))
    label = ((tokens < 5).sum(1) > (tokens >= 15).sum(1)).long()
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=USE_AMP):
        loss = nn.functional.cross_entropy(model(tokens), label)
    loss.backward()
    opt.step()
    if step % 40 == 39:
        print(step + 1, f"{loss.item():.4f}")
