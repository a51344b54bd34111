"""A small transformer sorts sequences by their motif; the logits are the same in training and evaluation."""

import os

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(os.environ.get("SEED", "0"))


class Sorter(nn.Module):
    def __init__(self, classes=4, width=32):
        super().__init__()
        self.embedding = nn.Embedding(12, width)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)

    def forward(self, tokens):
        hidden = self.encoder(self.embedding(tokens) + self.position)
        return self.out(hidden.mean(1))


def sample(count, generator):
    label = torch.randint(0, 4, (count,), generator=generator)
    tokens = torch.randint(4, 12, (count, 16), generator=generator)
    places = torch.rand(count, 16, generator=generator).argsort(1)[:, :3]
    motif = torch.where(torch.rand(count, 3, generator=generator) < 0.65, label[:, None], tokens[:, :3] % 4)
    return tokens.scatter(1, places, motif), label


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    x, y = sample(2000, generator)
    x_val, y_val = sample(600, generator)
    model = Sorter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(8):
        model.train()
        for part in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            logits = model(x_val)
            loss = F.cross_entropy(logits, y_val).item()
        print(f"epoch {epoch} val loss {loss:.3f} accuracy {(logits.argmax(1) == y_val).float().mean():.3f}")


main()
