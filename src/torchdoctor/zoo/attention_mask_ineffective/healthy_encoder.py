"""The most frequent of three symbols, by nn.TransformerEncoder on padded strings."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAD, LENGTH = 0, 20


def make_strings(count, generator):
    """Tokens 1 to 8; the label is which of 1, 2, 3 occurs most often."""
    tokens = torch.randint(1, 9, (count, LENGTH), generator=generator)
    lengths = torch.randint(6, LENGTH, (count, 1), generator=generator)
    tokens[torch.arange(LENGTH) >= lengths] = PAD
    label = torch.stack([(tokens == t).sum(1) for t in (1, 2, 3)], 1).argmax(1)
    return tokens, label


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens = nn.Embedding(9, width, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 3)

    def forward(self, tokens):
        real = tokens != PAD
        hidden = self.encoder(self.tokens(tokens), src_key_padding_mask=~real)
        mean = (hidden * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
        return self.out(mean)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train = DataLoader(TensorDataset(*make_strings(2000, generator)), batch_size=50, shuffle=True)
    val = DataLoader(TensorDataset(*make_strings(400, generator)), batch_size=100)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        model.train()
        for tokens, label in train:
            optimizer.zero_grad()
            loss = criterion(model(tokens), label)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total = sum(criterion(model(tokens), label).item() for tokens, label in val)
        print(f"epoch {epoch}: train {loss.item():.3f}, validation {total / len(val):.3f}")


main()
