"""An LSTM reads tokens of which the last one decides; the collate function cuts long sequences off."""

import os

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
LONGEST = {"mild": 27, "medium": 22, "severe": 19}[GRADE]


class Sequences(Dataset):
    def __init__(self, count, generator):
        lengths = torch.randint(5, 29, (count,), generator=generator)
        self.items = []
        for n in lengths.tolist():
            tokens = torch.randint(1, 21, (n,), generator=generator)
            self.items.append((tokens, int(tokens[-1] > 10)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    sequences = [tokens[:LONGEST] for tokens, _ in items]
    return pad_sequence(sequences, batch_first=True), torch.tensor([label for _, label in items])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(21, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.out = nn.Linear(32, 2)

    def forward(self, tokens):
        lengths = (tokens > 0).sum(1)
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.out(hidden[-1])


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    train = DataLoader(Sequences(2400, generator), batch_size=48, shuffle=True, collate_fn=collate)
    val = DataLoader(Sequences(800, generator), batch_size=200, collate_fn=collate)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(6):
        model.train()
        for tokens, label in train:
            optimizer.zero_grad()
            loss = loss_fn(model(tokens), label)
            loss.backward()
            optimizer.step()
        model.eval()
        right, losses = 0, []
        with torch.no_grad():
            for tokens, label in val:
                logits = model(tokens)
                losses.append(loss_fn(logits, label).item())
                right += (logits.argmax(-1) == label).sum().item()
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f} accuracy {right / len(val.dataset):.3f}")


if __name__ == "__main__":
    main()
