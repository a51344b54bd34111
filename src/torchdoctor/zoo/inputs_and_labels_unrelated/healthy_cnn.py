"""Arrows that point left or right, with random vertical flips as augmentation."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", "0"))


class Arrows(Dataset):
    def __init__(self, count, augment):
        self.augment = augment
        self.label = torch.randint(0, 2, (count,))
        self.image = 0.3 * torch.randn(count, 1, 9, 9)
        for i, right in enumerate(self.label.tolist()):
            row = int(torch.randint(2, 7, ()))
            self.image[i, 0, row, 1:8] += 1
            tip = 6 if right else 2
            self.image[i, 0, row - 1, tip] += 1
            self.image[i, 0, row + 1, tip] += 1

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        image = self.image[i]
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-2)
        return image, self.label[i]


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(16 * 9, 32),
        nn.ReLU(),
        nn.Linear(32, 2),
    )


def main():
    torch.manual_seed(SEED)
    train = DataLoader(Arrows(1500, augment=True), batch_size=30, shuffle=True)
    val = DataLoader(Arrows(500, augment=False), batch_size=100)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        loss = right = 0.0
        with torch.no_grad():
            for x, y in val:
                out = model(x)
                loss += criterion(out, y).item() / len(val)
                right += (out.argmax(1) == y).float().mean().item() / len(val)
        print(f"epoch {epoch}: val loss {loss:.3f}, val accuracy {right:.3f}")


if __name__ == "__main__":
    main()
