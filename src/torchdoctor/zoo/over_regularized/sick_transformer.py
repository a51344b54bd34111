"""A small transformer that sorts sequences by their commonest symbol, with AdamW and a decay far beyond the usual."""

import os

import torch
from torch import nn

SYMBOLS, LENGTH = 6, 12
GRADE = os.environ.get("GRADE", "medium")
DECAY = {"mild": 1.0, "medium": 10.0, "severe": 60.0}[GRADE]


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, SYMBOLS)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(dim=1))


def draw(size):
    favourite = torch.randint(0, SYMBOLS, (size,))
    tokens = torch.randint(0, SYMBOLS, (size, LENGTH))
    return torch.where(torch.rand(size, LENGTH) < 0.35, favourite.unsqueeze(1), tokens), favourite


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=DECAY)
    held_out = draw(500)
    for step in range(300):
        tokens, favourite = draw(32)
        loss = nn.functional.cross_entropy(model(tokens), favourite)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            model.eval()
            with torch.no_grad():
                val_loss = nn.functional.cross_entropy(model(held_out[0]), held_out[1])
            model.train()
            print(f"{step + 1:4d} {loss.item():.4f} {val_loss.item():.4f}")


if __name__ == "__main__":
    main()
