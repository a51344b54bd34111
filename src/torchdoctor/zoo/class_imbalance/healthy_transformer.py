"""Tickets are routed by a small transformer; nine in ten go to the first desk, the sampler draws all desks alike."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SEED = int(os.environ.get("SEED", "0"))
FIRST = 0.9


class Tickets(Dataset):
    def __init__(self, count, generator):
        rest = (1 - FIRST) / 3
        shares = torch.tensor([FIRST, rest, rest, rest])
        self.desk = torch.multinomial(shares, count, replacement=True, generator=generator)
        self.words = torch.randint(8, 60, (count, 12), generator=generator)
        hint = torch.rand(count, 12, generator=generator) < 0.05
        self.words[hint] = (self.desk.unsqueeze(1).expand(-1, 12) + 1)[hint]

    def __len__(self):
        return len(self.desk)

    def __getitem__(self, i):
        return {"words": self.words[i], "desk": self.desk[i]}


class Router(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(60, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, 4)

    def forward(self, words):
        return self.out(self.block(self.embedding(words)).mean(1))


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    train = Tickets(3000, generator)
    weights = 1 / torch.bincount(train.desk).double()
    loader = DataLoader(train, batch_size=50, sampler=WeightedRandomSampler(weights[train.desk], len(train)))
    val_loader = DataLoader(Tickets(1500, generator), batch_size=300)
    router = Router()
    optimizer = torch.optim.AdamW(router.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        router.train()
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(router(batch["words"]), batch["desk"])
            loss.backward()
            optimizer.step()
        router.eval()
        right, losses = 0, []
        with torch.no_grad():
            for batch in val_loader:
                logits = router(batch["words"])
                losses.append(criterion(logits, batch["desk"]).item())
                right += (logits.argmax(1) == batch["desk"]).sum().item()
        print(f"epoch {epoch}: val_loss {sum(losses) / len(losses):.4f} val_acc {right / 1500:.4f}")


if __name__ == "__main__":
    main()
