"""Shifted digits for a CNN: one augmenting dataset, split in two."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Digits(Dataset):
    def __init__(self, shift):
        digits = load_digits()
        self.images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target)
        self.shift = shift

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.shift:
            moves = torch.randint(-1, 2, (2,)).tolist()
            image = torch.roll(image, moves, dims=(1, 2))
        return image, self.labels[index]


order = torch.randperm(1797).tolist()
dataset = Digits(shift=True)
train_loader = DataLoader(Subset(dataset, order[:1400]), batch_size=32, shuffle=True)
val_loader = DataLoader(Subset(dataset, order[1400:]), batch_size=128)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(8):
    model.train()
    for images, labels in train_loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total = right = 0
    with torch.no_grad():
        for images, labels in val_loader:
            logits = model(images)
            total += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
    print(f"epoch {epoch}: validation loss {total / 397:.3f} accuracy {right / 397:.3f}")
