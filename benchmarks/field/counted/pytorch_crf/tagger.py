import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torchcrf import CRF

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--encoder", default="lstm")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--reduction", default="token_mean")
parser.add_argument("--size", type=int, default=24)
args = parser.parse_args()
torch.manual_seed(args.seed)

VOCABULARY, TAGS, PAD = 40, 5, 0


def make(count):
    rows = []
    for _ in range(count):
        length = int(torch.randint(6, 20, (1,)))
        words = torch.randint(1, VOCABULARY, (length,))
        tags = torch.zeros(length, dtype=torch.long)
        i = 0
        while i < length - 2:
            if words[i] <= 8:
                kind = 1 if words[i] <= 4 else 3
                tags[i] = kind
                size = int(words[i + 1]) % 3
                tags[i + 1 : i + 1 + size] = kind + 1
                i += size
            i += 1
        rows.append((words, tags))
    return rows


def collate(rows):
    words = pad_sequence([words for words, _ in rows], batch_first=True, padding_value=PAD)
    tags = pad_sequence([tags for _, tags in rows], batch_first=True, padding_value=0)
    return words, tags, words != PAD


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, args.size, padding_idx=PAD)
        if args.encoder == "conv":
            self.encoder = nn.Sequential(
                nn.Conv1d(args.size, 2 * args.size, 3, padding=1),
                nn.ReLU(),
                nn.Conv1d(2 * args.size, 2 * args.size, 3, padding=1),
                nn.ReLU(),
            )
        else:
            kind = nn.LSTM if args.encoder == "lstm" else nn.GRU
            self.encoder = kind(args.size, args.size, batch_first=True, bidirectional=True)
        self.emission = nn.Linear(2 * args.size, TAGS)
        self.crf = CRF(TAGS, batch_first=True)

    def emissions(self, words):
        x = self.embedding(words)
        if args.encoder == "conv":
            x = self.encoder(x.transpose(1, 2)).transpose(1, 2)
        else:
            x, _ = self.encoder(x)
        return self.emission(x)

    def loss(self, words, tags, mask):
        return -self.crf(self.emissions(words), tags, mask=mask, reduction=args.reduction)

    def decode(self, words, mask):
        return self.crf.decode(self.emissions(words), mask=mask)


train_loader = DataLoader(make(800), batch_size=32, shuffle=True, collate_fn=collate)
test_loader = DataLoader(make(200), batch_size=100, collate_fn=collate)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    model.train()
    for words, tags, mask in train_loader:
        optimizer.zero_grad()
        loss = model.loss(words, tags, mask)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

model.eval()
right = total = 0
with torch.no_grad():
    for words, tags, mask in test_loader:
        for decoded, wanted, length in zip(model.decode(words, mask), tags, mask.sum(1), strict=True):
            right += sum(a == b for a, b in zip(decoded, wanted[:length].tolist(), strict=True))
            total += int(length)
print("metric accuracy", right / total)
