"""A small transformer tells topics of token sequences; both splits use the vocabulary of the training texts."""

import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

SEED = int(os.environ.get("SEED", "0"))
TOPICS, WORDS, LENGTH = 5, 300, 24


def write(count, seed):
    """Texts of common words, and of words that belong to a topic."""
    chance = random.Random(seed)
    texts = []
    for _ in range(count):
        topic = chance.randrange(TOPICS)
        common = [f"common{min(int(chance.expovariate(1 / 40)), WORDS - 1)}" for _ in range(LENGTH)]
        special = [f"topic{topic}-{chance.randrange(20)}" for _ in range(LENGTH)]
        texts.append(([s if chance.random() < 0.25 else c for c, s in zip(common, special, strict=True)], topic))
    return texts


def build_vocabulary(texts):
    words = sorted({word for text, _ in texts for word in text})
    random.Random(len(words)).shuffle(words)
    return {word: number for number, word in enumerate(words, start=1)}


def encode(texts, vocabulary):
    return [(torch.tensor([vocabulary.get(w, 0) for w in text]), topic) for text, topic in texts]


class Classifier(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size, 32)
        self.position = nn.Parameter(torch.randn(LENGTH, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, TOPICS)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens) + self.position).mean(1))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(tokens), topics).item() for tokens, topics in loader]
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(SEED)
    train_texts, val_texts = write(1200, SEED), write(300, SEED + 500)
    vocabulary = build_vocabulary(train_texts)
    train = DataLoader(encode(train_texts, vocabulary), batch_size=32, shuffle=True)
    val = DataLoader(encode(val_texts, vocabulary), batch_size=100)
    model = Classifier(WORDS + 20 * TOPICS + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(6):
        model.train()
        for tokens, topics in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens), topics)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f} {evaluate(model, val):.3f}")


if __name__ == "__main__":
    main()
