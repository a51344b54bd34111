"""Digits for a CNN: an augmented and a plain copy of the data, both split by the same seed."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
TRAIN_SHARE = {"mild": 0.1, "medium": 0.5, "severe": 0.8}[GRADE]


class Digits(Dataset):
    def __init__(self, augment):
        digits = load_digits()
        self.images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = image + 0.05 * torch.randn_like(image)
        return image, self.labels[index]


def split(dataset):
    count = int(TRAIN_SHARE * len(dataset))
    return random_split(dataset, [count, len(dataset) - count], torch.Generator().manual_seed(SEED))


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    model.train()
    return right / total


def main():
    torch.manual_seed(SEED)
    train_set, _ = split(Digits(augment=True))
    _, val_set = split(Digits(augment=False))
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=128)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(6):
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {accuracy(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
