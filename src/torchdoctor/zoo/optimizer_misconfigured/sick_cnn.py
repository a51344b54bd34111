"""A convolutional network on digits, with a momentum that remembers a thousand steps."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
MOMENTUM = {"mild": 0.995, "medium": 0.999, "severe": 1.0}[GRADE]


def loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train, val = train_test_split(range(len(images)), test_size=0.2, random_state=SEED)
    train_set, val_set = TensorDataset(images[train], labels[train]), TensorDataset(images[val], labels[val])
    return DataLoader(train_set, batch_size, shuffle=True), DataLoader(val_set, 256)


def main():
    torch.manual_seed(SEED)
    train_loader, val_loader = loaders(32)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=MOMENTUM)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(8):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / len(val_loader.dataset):.3f}")


if __name__ == "__main__":
    main()
