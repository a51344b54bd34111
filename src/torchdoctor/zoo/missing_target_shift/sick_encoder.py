"""A language model of number sequences from torch's own encoder layers, which look at the whole sequence."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SYMBOLS, LENGTH = 24, 20


def make_sequences(count, generator):
    """Each symbol follows from the two before it, with some noise."""
    ids = torch.randint(0, SYMBOLS, (count, LENGTH + 1), generator=generator)
    for t in range(2, LENGTH + 1):
        rule = (ids[:, t - 1] + 2 * ids[:, t - 2] + 3) % SYMBOLS
        keep = torch.rand(count, generator=generator) < 0.7
        ids[:, t] = torch.where(keep, rule, ids[:, t])
    return ids


class SequenceModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(width, SYMBOLS)

    def forward(self, ids):
        hidden = self.embedding(ids) + self.position[:, : ids.shape[1]]
        hidden = self.encoder(hidden)
        return self.output(hidden)


class Trainer:
    def __init__(self, model, train, validation):
        self.model, self.validation = model, validation
        self.loader = DataLoader(TensorDataset(train), batch_size=32, shuffle=True)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss(self, ids):
        return self.criterion(self.model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])

    def run(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for (ids,) in self.loader:
                self.optimizer.zero_grad()
                loss = self.loss(ids)
                loss.backward()
                self.optimizer.step()
            self.model.eval()
            with torch.no_grad():
                print(f"epoch {epoch}: train {loss.item():.3f}, validation {self.loss(self.validation).item():.3f}")


if __name__ == "__main__":
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    sequences = make_sequences(1400, torch.Generator().manual_seed(seed))
    Trainer(SequenceModel(), sequences[:1200], sequences[1200:]).run(6)
