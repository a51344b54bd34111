"""Texts by their hashed character trigrams, which are counted once before training."""

import os
import random
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader

TOPICS, BUCKETS = 4, 512


def write_texts(count, chance):
    """Texts of 60 words, each topic with a taste of its own."""
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(400)]
    tastes = [[chance.random() ** 2 for _ in words] for _ in range(TOPICS)]
    topics = [chance.randrange(TOPICS) for _ in range(count)]
    return [(" ".join(chance.choices(words, tastes[topic], k=60)), topic) for topic in topics]


def featurize(text):
    """Counts of all trigrams of a text by the bucket that their hash falls into."""
    counts = torch.zeros(BUCKETS)
    buckets = [zlib.crc32(text[i : i + 3].encode()) % BUCKETS for i in range(len(text) - 2)]
    counts.index_add_(0, torch.tensor(buckets), torch.ones(len(buckets)))
    return counts.sqrt()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(BUCKETS)
        self.hidden = nn.Linear(BUCKETS, 64)
        self.out = nn.Linear(64, TOPICS)

    def forward(self, counts):
        return self.out(torch.relu(self.hidden(self.norm(counts))))


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    samples = [(featurize(text), topic) for text, topic in write_texts(3000, random.Random(seed))]
    loader = DataLoader(samples, batch_size=64, shuffle=True)
    model, criterion = Classifier(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        total = 0.0
        for counts, topics in loader:
            loss = criterion(model(counts), topics)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
