"""An encoder and a decoder that write a number's digits the other way round; the decoder gets what comes before."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

START, DIGITS = 10, 6


class Translator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.source = nn.Embedding(11, 32)
        self.target = nn.Embedding(11, 32)
        self.encoder = nn.GRU(32, width, batch_first=True)
        self.decoder = nn.GRU(32, width, batch_first=True)
        self.out = nn.Linear(width, 11)

    def forward(self, source, target):
        _, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(target), state)
        return self.out(hidden)


def numbers(count, generator):
    source = torch.randint(0, 10, (count, DIGITS), generator=generator)
    start = torch.full((count, 1), START)
    return TensorDataset(source, torch.cat([start, source.flip(1)], dim=1))


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    loader = DataLoader(numbers(4000, torch.Generator().manual_seed(seed)), batch_size=100, shuffle=True)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        total = 0.0
        for source, written in loader:
            before, wanted = written[:, :-1], written[:, 1:]
            loss = criterion(model(source, before).transpose(1, 2), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
