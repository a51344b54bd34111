"""A small decoder-style transformer trained to predict the next token."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
VOCAB, CONTEXT, DIM = 16, 24, 48
table = torch.softmax(2 * torch.randn(VOCAB, VOCAB), 1)


def chain(n, length):
    seq = torch.zeros(n, length, dtype=torch.long)
    seq[:, 0] = torch.randint(0, VOCAB, (n,))
    for i in range(1, length):
        seq[:, i] = torch.multinomial(table[seq[:, i - 1]], 1).squeeze(1)
    return seq


class GPTish(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CONTEXT, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        return self.lm_head(self.stack(x))


data = chain(600, CONTEXT + 1)
model = GPTish()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(200):
    rows = data[torch.randint(0, len(data), (32,))]
    logits = model(rows[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), rows[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1}: {loss.item():.4f}")
