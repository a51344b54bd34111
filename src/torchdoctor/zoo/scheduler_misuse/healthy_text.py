"""A bag-of-words classifier whose schedule is stepped at the end of every epoch."""

import os

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

WORDS, TOPICS = 200, 4


class Documents(Dataset):
    """Each topic prefers its own fifty words; a third of a document is noise."""

    def __init__(self, count, generator):
        self.topics = torch.randint(0, TOPICS, (count,), generator=generator)
        own = torch.randint(0, 50, (count, 30), generator=generator) + 50 * self.topics[:, None]
        noise = torch.randint(0, WORDS, (count, 30), generator=generator)
        self.words = torch.where(torch.rand(count, 30, generator=generator) < 0.35, own, noise)

    def __len__(self):
        return len(self.topics)

    def __getitem__(self, i):
        return self.words[i], self.topics[i]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 16)
        self.head = nn.Linear(16, TOPICS)

    def forward(self, words):
        return self.head(self.bag(words))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(words).argmax(1) == topics).sum().item() for words, topics in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train = DataLoader(Documents(1200, generator), batch_size=40, shuffle=True)
    validation = DataLoader(Documents(300, generator), batch_size=100)
    model = Classifier()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    for epoch in range(9):
        for words, topics in train:
            optimizer.zero_grad()
            loss = criterion(model(words), topics)
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch}: {loss.item():.3f}, accuracy {accuracy(model, validation):.3f}")


if __name__ == "__main__":
    main()
