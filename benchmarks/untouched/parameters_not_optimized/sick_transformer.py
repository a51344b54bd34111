"""A transformer encoder that sorts out which of four motifs a sequence holds."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
VOCAB, LENGTH, CLASSES = 12, 16, 4
MOTIFS = torch.tensor([[1, 2, 3], [3, 2, 1], [2, 1, 3], [3, 1, 2]])


class Encoder(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.token = nn.Embedding(VOCAB, dim)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        self.blocks = [
            nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(depth)
        ]
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, tokens):
        x = self.token(tokens) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def sample(n):
    tokens = torch.randint(4, VOCAB, (n, LENGTH))
    label = torch.randint(0, CLASSES, (n,))
    start = torch.randint(0, LENGTH - 3, (n,))
    for i in range(3):
        tokens[torch.arange(n), start + i] = MOTIFS[label, i]
    return tokens, label


model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(250):
    tokens, label = sample(64)
    loss = loss_fn(model(tokens), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, f"{loss.item():.4f}")
