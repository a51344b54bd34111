"""Sentiment of short token sequences with a GRU; a dataset class serves copies of encoded reviews."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", "0"))
WORDS, LENGTH = 200, 16


class Reviews(Dataset):
    """Words below 50 are kind, those from 150 on are not, the rest means nothing."""

    def __init__(self, count, seed):
        random = np.random.default_rng(seed)
        self.texts = []
        self.labels = []
        for _ in range(count):
            label = int(random.integers(0, 2))
            tone = random.integers(0, 50, LENGTH) if label else random.integers(150, WORDS, LENGTH)
            plain = random.integers(50, 150, LENGTH)
            self.texts.append(np.where(random.random(LENGTH) < 0.3, tone, plain))
            self.labels.append(label)
        self.encoded = np.zeros(LENGTH, dtype=np.int64)

    def __len__(self):
        return len(self.texts)

    def encode(self, text):
        for position, word in enumerate(text):
            self.encoded[position] = word
        return torch.from_numpy(self.encoded.copy())

    def __getitem__(self, index):
        return self.encode(self.texts[index]), self.labels[index]


def collate(samples):
    texts = torch.stack([text for text, _ in samples])
    return texts, torch.tensor([label for _, label in samples])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 24)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, tokens):
        _, hidden = self.gru(self.embedding(tokens))
        return self.head(hidden[-1]).squeeze(-1)


def main():
    torch.manual_seed(SEED)
    train = DataLoader(Reviews(1500, SEED), batch_size=32, shuffle=True, collate_fn=collate)
    held = DataLoader(Reviews(300, SEED + 1000), batch_size=100, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        model.train()
        for tokens, labels in train:
            loss = loss_fn(model(tokens), labels.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        model.eval()
        with torch.no_grad():
            held_loss = np.mean([loss_fn(model(tokens), labels.float()).item() for tokens, labels in held])
        print(f"epoch {epoch}: {loss.item():.3f} {held_loss:.3f}")


if __name__ == "__main__":
    main()
