"""A causal transformer language model with tied embeddings."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
VOCAB, CONTEXT, DIM = 20, 16, 32
table = torch.softmax(3 * torch.randn(VOCAB, VOCAB), 1)


def corpus(n):
    seq = torch.randint(0, VOCAB, (n, CONTEXT + 1))
    for i in range(1, CONTEXT + 1):
        seq[:, i] = torch.multinomial(table[seq[:, i - 1]], 1).squeeze(1)
    return seq


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CONTEXT, DIM)
        nn.init.normal_(self.tok.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(DIM, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.head.weight = self.tok.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, t):
        h = self.tok(t) + self.pos(torch.arange(t.shape[1]))
        return self.head(self.norm(self.body(h, mask=self.mask, is_causal=True)))


train, val = corpus(1500), corpus(300)
model = CausalLM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=20)


def loss_of(rows):
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


for epoch in range(9):
    model.train()
    for idx in torch.randperm(len(train)).split(32):
        loss = loss_of(train[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    model.eval()
    with torch.no_grad():
        print(f"epoch {epoch} train {loss.item():.4f} val {loss_of(val).item():.4f}")
