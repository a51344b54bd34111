"""A patch classifier with a norm layer of its own."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 8


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        deviation = centred.pow(2).mean(dim=-1, keepdim=True).sqrt()
        return centred / deviation * self.gain + self.shift


class PatchBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = Norm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(PatchBlock(16) for _ in range(3))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        x = x.unfold(1, 4, 4).unfold(2, 4, 4).flatten(3).flatten(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


images = torch.rand((AT + 20) * BATCH, 8, 8)
labels = (images[:, :4].mean(dim=(1, 2)) > 0.5).long()
order = torch.randperm(len(images))
images[order[(AT - 1) * BATCH + 6], 4:, :4] = 0.25
loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, sampler=order.tolist())
model = Patches()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader, 1):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
