"""Digits stored folder by folder, read by a loader that shuffles them."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Folders(Dataset):
    """All zeros first, then all ones, and so on, as an image folder lists them."""

    def __init__(self):
        digits = load_digits()
        order = np.argsort(digits.target, kind="stable")
        self.images = torch.tensor(digits.images[order] / 16, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target[order])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    loader = DataLoader(Folders(), batch_size=32, shuffle=True)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(5):
        running = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: {running / len(loader):.4f}")


if __name__ == "__main__":
    main()
