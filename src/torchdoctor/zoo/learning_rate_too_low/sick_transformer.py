"""A transformer encoder that tells which symbol is the most frequent, with AdamW at 0.000001."""

import os

import torch
from torch import nn

SYMBOLS, LENGTH = 8, 16


class Counter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, SYMBOLS)

    def forward(self, tokens):
        hidden = self.encoder(self.embed(tokens) + self.position)
        return self.head(hidden.mean(dim=1))


def batch(size):
    tokens = torch.randint(0, SYMBOLS, (size, LENGTH))
    favourite = torch.randint(0, SYMBOLS, (size,))
    tokens[torch.rand(size, LENGTH) < 0.3] = -1
    tokens = torch.where(tokens < 0, favourite.unsqueeze(1), tokens)
    return tokens, favourite


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Counter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01)
    for step in range(250):
        tokens, favourite = batch(32)
        loss = nn.functional.cross_entropy(model(tokens), favourite)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step:4d} {loss.item():.4f}")


if __name__ == "__main__":
    main()
