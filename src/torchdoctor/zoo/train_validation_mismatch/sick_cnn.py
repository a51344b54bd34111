"""Digits for a CNN; the training loader normalises, and evaluation reads the tensors as they are."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")
TOP = {"mild": 12.0, "medium": 1.0, "severe": 0.1}[GRADE]


def normalize(image):
    return (image / 16 - 0.3) / 0.37


class Digits(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image / TOP, self.labels[index]


digits = load_digits()
order = torch.randperm(len(digits.target))
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order]
labels = torch.tensor(digits.target)[order]
train_loader = DataLoader(Digits(images[:1400], labels[:1400], normalize), batch_size=40, shuffle=True)
val_loader = DataLoader(Digits(images[1400:], labels[1400:]), batch_size=100)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 16, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(8):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    losses, right = [], 0
    with torch.no_grad():
        for x, y in val_loader:
            logits = model(x)
            losses.append(criterion(logits, y).item())
            right += (logits.argmax(1) == y).sum().item()
    print(f"epoch {epoch}: {loss.item():.3f} {sum(losses) / len(losses):.3f} {right / 397:.3f}")
