"""A tiny vision transformer on digits with warm-up and cosine decay."""

import math
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class TinyViT(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 2, stride=2)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        layer = nn.TransformerEncoderLayer(
            dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x)[:, 0]))


d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 8 - 1, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=50, shuffle=True)
model = TinyViT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
total_steps, warm = 12 * len(train), 20
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (total_steps - warm)))
)
for epoch in range(12):
    model.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        sched.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x[p[1400:]]).argmax(1) == y[p[1400:]]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")
