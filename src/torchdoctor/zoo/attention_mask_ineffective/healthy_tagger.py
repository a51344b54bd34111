"""Words of padded sentences are tagged with multi-head attention under a padding mask."""

import os

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

WORDS, TAGS, PAD = 60, 5, 0


def make_sentences(count, generator):
    meaning = torch.randint(TAGS, (WORDS,), generator=torch.Generator().manual_seed(5))
    sentences = []
    for _ in range(count):
        length = int(torch.randint(3, 18, (1,), generator=generator))
        words = torch.randint(1, WORDS, (length,), generator=generator)
        sentences.append((words, (meaning[words] + (words < 6).any()) % TAGS))
    return sentences


def collate(batch):
    words, tags = zip(*batch, strict=True)
    return pad_sequence(words, True, PAD), pad_sequence(tags, True, -100)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x, padding=None):
        mixed, _ = self.attention(x, x, x, key_padding_mask=padding)
        x = self.norm1(x + mixed)
        return self.norm2(x + self.mlp(x))


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.out = nn.Linear(width, TAGS)

    def forward(self, words):
        padding = words == PAD
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, padding)
        return self.out(x)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train = DataLoader(make_sentences(1200, generator), 40, shuffle=True, collate_fn=collate)
    val = DataLoader(make_sentences(200, generator), 40, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        model.train()
        for words, tags in train:
            loss = criterion(model(words).flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [criterion(model(w).flatten(0, 1), t.flatten()).item() for w, t in val]
        print(f"epoch {epoch}: train {loss.item():.3f}, validation {sum(losses) / len(losses):.3f}")


main()
