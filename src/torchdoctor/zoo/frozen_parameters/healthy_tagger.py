"""A recurrent tagger over rare words, whose embedding table trains with the rest."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
WORDS, TAGS, LENGTH = 400, 4, 12


class Tagger(nn.Module):
    def __init__(self, freeze):
        super().__init__()
        self.words = nn.Embedding(WORDS, 48)
        self.words.weight.requires_grad = not freeze
        self.rnn = nn.GRU(48, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, TAGS)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.words(tokens))
        return self.out(hidden)


meaning = torch.randint(TAGS, (WORDS,))
tokens = torch.randint(WORDS, (4200, LENGTH))
tags = (meaning[tokens] + meaning[tokens.roll(1, 1)]) % TAGS
train_x, train_y, val_x, val_y = tokens[:4000], tags[:4000], tokens[4000:], tags[4000:]

tagger = Tagger(freeze=False)
trained = [p for p in tagger.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(5):
    tagger.train()
    for rows in torch.randperm(len(train_x)).split(40):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(tagger(train_x[rows]).flatten(0, 1), train_y[rows].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 5.0)
        optimizer.step()
    tagger.eval()
    with torch.no_grad():
        val_loss = criterion(tagger(val_x).flatten(0, 1), val_y.flatten())
    print(f"epoch {epoch}: train {loss.item():.3f}, validation {val_loss.item():.3f}")
