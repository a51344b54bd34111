"""Digits cut into patches are classified by attention among the patches, whose scores get a far too large scale."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
SCALE = {"mild": 1.0, "medium": 16.0, "severe": 64.0}[GRADE]


class PatchClassifier(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(4, width)
        self.place = nn.Parameter(torch.randn(16, width))
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 10)

    def forward(self, images):
        patches = F.unfold(images, 2, stride=2).transpose(1, 2)
        x = self.norm(torch.tanh(self.embed(patches)) + self.place)
        q, k, v = (layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, scale=SCALE)
        return self.out(mixed.transpose(1, 2).flatten(2).mean(1))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=64, shuffle=True)
    model = PatchClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(5):
        model.train()
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = F.cross_entropy(model(images[1400:]), labels[1400:])
        print(f"epoch {epoch}: train {loss.item():.3f}, validation {val.item():.3f}")


main()
