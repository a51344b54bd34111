"""A small transformer reads token sequences under a trainer class: its evaluation only switches gradients off."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH = 40, 16


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.dropout(self.attention(h, h, h, need_weights=False)[0])
        return x + self.dropout(self.mlp(self.norm2(x)))


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, 4, 0.2) for _ in range(2)))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x) + self.positions).mean(1))


class Trainer:
    def __init__(self, model, train_set, test_set):
        self.model = model
        self.train_loader = DataLoader(train_set, batch_size=48, shuffle=True)
        self.test_loader = DataLoader(test_set, batch_size=100)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss()

    def train_epoch(self):
        self.model.train()
        for tokens, labels in self.train_loader:
            self.optimizer.zero_grad()
            self.criterion(self.model(tokens), labels).backward()
            self.optimizer.step()

    @torch.inference_mode()
    def evaluate(self):
        right = sum((self.model(tokens).argmax(1) == labels).sum().item() for tokens, labels in self.test_loader)
        return right / len(self.test_loader.dataset)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            print(f"epoch {epoch}: accuracy {self.evaluate():.3f}")


def make_reviews(count):
    """Token sequences with the sign of the sum of their tokens' moods, some of them unclear."""
    moods = torch.randn(VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH))
    total = moods[tokens].sum(1) + torch.randn(count)
    return tokens, (total > total.median()).long()


torch.manual_seed(int(os.environ.get("SEED", "0")))
tokens, labels = make_reviews(3000)
Trainer(Reader(), TensorDataset(tokens[:2400], labels[:2400]), TensorDataset(tokens[2400:], labels[2400:])).fit(
    epochs=6
)
