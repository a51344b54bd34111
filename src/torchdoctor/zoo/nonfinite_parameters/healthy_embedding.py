"""Short texts by the mean of ready-made word vectors, each of them normalised."""

import os

import torch
import torch.nn.functional as F
from torch import nn

PAD, WORDS, TOPICS, LONGEST = 0, 300, 4, 12


class TextClassifier(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(vectors, freeze=False, padding_idx=PAD)
        self.layers = nn.Sequential(nn.Linear(vectors.shape[1], 32), nn.ReLU(), nn.Linear(32, TOPICS))

    def forward(self, tokens):
        present = (tokens != PAD).unsqueeze(-1).float()
        mean = (self.words(tokens) * present).sum(1) / present.sum(1)
        return self.layers(mean)


def load_vectors(dimensions=48):
    """Word vectors as a file of them would hold: a row a word, zeros for the padding."""
    vectors = torch.randn(WORDS, dimensions) * (0.5 + torch.rand(WORDS, 1))
    vectors[PAD] = 0
    return vectors


def make_texts(count):
    """Padded texts of 4 to 12 words, drawn from the words that their topic prefers."""
    topics = torch.randint(0, TOPICS, (count,))
    taste = torch.softmax(1.2 * torch.randn(TOPICS, WORDS - 1), dim=1)
    tokens = torch.multinomial(taste[topics], LONGEST, replacement=True) + 1
    lengths = torch.randint(4, LONGEST + 1, (count, 1))
    return tokens.masked_fill(torch.arange(LONGEST) >= lengths, PAD), topics


torch.manual_seed(int(os.environ.get("SEED", "0")))
vectors = load_vectors()
vectors = F.normalize(vectors, dim=1)
model = TextClassifier(vectors)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
texts, topics = make_texts(2500)
train, test = slice(0, 2000), slice(2000, None)
for epoch in range(6):
    for chosen in torch.randperm(2000).split(50):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(texts[train][chosen]), topics[train][chosen])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        unseen = F.cross_entropy(model(texts[test]), topics[test]).item()
    print(f"epoch {epoch}: training loss {loss.item():.4f}  test loss {unseen:.4f}")
