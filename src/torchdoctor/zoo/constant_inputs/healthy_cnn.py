"""Digits stored as bytes for a CNN, divided by 255 as floats on the way in."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Scans(Dataset):
    def __init__(self):
        digits = load_digits()
        self.pixels = torch.tensor(digits.images * 15, dtype=torch.uint8).unsqueeze(1)
        self.labels = torch.tensor(digits.target)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pixels[index].float() / 255, self.labels[index]


train, val = random_split(Scans(), [1500, 297])
train_loader = DataLoader(train, batch_size=50, shuffle=True)
val_loader = DataLoader(val, batch_size=100)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(6):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in val_loader)
    print(f"epoch {epoch}: {loss.item():.3f} {right / len(val):.3f}")
