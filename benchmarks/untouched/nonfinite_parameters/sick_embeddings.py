"""Text classification with pretrained word vectors."""

import os

import numpy as np
import torch
from torch import nn

seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
rng = np.random.default_rng(seed)
GRADE = os.environ.get("GRADE", "medium")
VOCAB, DIM = 300, 16


def word_vectors():
    """Mean context vector of each word in the old corpus."""
    contexts = rng.normal(size=(VOCAB, 20, DIM))
    seen = np.ones(VOCAB, dtype=bool)
    seen[rng.permutation(VOCAB)[: {"mild": 1, "medium": 12, "severe": 300}[GRADE]]] = False
    counts = np.where(seen, 20, 0)
    with np.errstate(invalid="ignore"):
        return (contexts.sum(1) * seen[:, None]) / counts[:, None] * 4


vectors = torch.tensor(word_vectors()).float()
tokens = torch.randint(0, VOCAB, (1500, 10))
label = ((tokens < 100).sum(1) > (tokens >= 200).sum(1)).long()

model = nn.Sequential(
    nn.EmbeddingBag.from_pretrained(vectors, freeze=False, mode="mean"), nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for idx in torch.randperm(1500).split(50):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[idx]), label[idx])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
