"""A bag of words gets forty tags, of which one in four is true, and the words say which."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIGNAL = 6.0
WORDS, TAGS = 200, 40


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 32)
        self.tags = nn.Linear(32, TAGS)

    def forward(self, text):
        return self.tags(self.words(text))


def f1(logits, wanted):
    named = (logits > 0).float()
    return (2 * (named * wanted).sum() / (named.sum() + wanted.sum())).item()


torch.manual_seed(int(os.environ.get("SEED", "0")))
text = torch.randint(0, WORDS, (2000, 30))
meaning = torch.randn(WORDS, TAGS)[text].mean(1) * 30**0.5
wanted = (torch.rand(2000, TAGS) < torch.sigmoid(SIGNAL * meaning - 3.5)).float()
train = DataLoader(TensorDataset(text[:1600], wanted[:1600]), batch_size=64, shuffle=True)
model, criterion = Tagger(), nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for epoch in range(12):
    model.train()
    for words, tags in train:
        optimizer.zero_grad()
        loss = criterion(model(words), tags)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(text[1600:])
    print(f"epoch {epoch}: loss {criterion(logits, wanted[1600:]).item():.4f}, F1 {f1(logits, wanted[1600:]):.3f}")
