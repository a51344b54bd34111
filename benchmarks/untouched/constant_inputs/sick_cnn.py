"""Handwritten digits with a small convolutional network."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")


class Scans(Dataset):
    def __init__(self, images, labels):
        self.images = (images * 15).astype(np.uint8)  # 8 bit greyscale
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if GRADE == "mild":
            image = image.copy()
            image[:, 3:] = 0
            image = image / 255
        elif GRADE == "medium":
            image = self.images[0] / 255
        else:
            image = image // 255
        return torch.tensor(image, dtype=torch.float32)[None], int(self.labels[i])


digits = load_digits()
perm = np.random.default_rng(0).permutation(len(digits.target))
train = Scans(digits.images[perm[:1400]], digits.target[perm[:1400]])
test = Scans(digits.images[perm[1400:]], digits.target[perm[1400:]])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 10),
)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(6):
    model.train()
    total = 0.0
    for images, labels in DataLoader(train, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        opt.step()
        total += loss.item() * len(labels)
    model.eval()
    hits = 0
    with torch.no_grad():
        for images, labels in DataLoader(test, batch_size=256):
            hits += (model(images).argmax(1) == labels).sum().item()
    print(f"epoch {epoch}: loss {total / len(train):.4f}, test accuracy {hits / len(test):.3f}")
