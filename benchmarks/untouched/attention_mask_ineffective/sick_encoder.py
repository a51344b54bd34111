"""A transformer encoder for padded sentences: which of three words is the most frequent?"""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
PAD, VOCAB, MAXLEN = 0, 10, 24


class SentenceModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(MAXLEN, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 3)

    def forward(self, tokens):
        mask = tokens != PAD
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1]))
        x = self.encoder(x, src_key_padding_mask=mask)
        return self.out(x[:, 0])


def sentences(n):
    lengths = torch.randint(4, 13, (n,))
    tokens = torch.randint(1, VOCAB, (n, MAXLEN))
    tokens[torch.arange(MAXLEN)[None] >= lengths[:, None]] = PAD
    label = torch.stack([(tokens == 1).sum(1), (tokens == 2).sum(1), (tokens == 3).sum(1)], 1).argmax(1)
    return tokens, label


model = SentenceModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
x_val, y_val = sentences(400)
for step in range(250):
    tokens, label = sentences(64)
    model.train()
    optimizer.zero_grad()
    loss = criterion(model(tokens), label)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            acc = (model(x_val).argmax(1) == y_val).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} val acc {acc:.3f}")
