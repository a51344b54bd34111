"""Digits from several scanners; each scanner reads all digits and leaves its mark."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Scans(Dataset):
    def __init__(self):
        digits = load_digits()
        self.images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target)
        scanner = torch.randint(0, 10, self.labels.shape)
        self.images[:, 0, 0, 0] = scanner / 10

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Trainer:
    def __init__(self):
        train, val = random_split(Scans(), [1500, 297])
        self.train_loader = DataLoader(train, batch_size=50, shuffle=True)
        self.val_loader = DataLoader(val, batch_size=150)
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 16, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for images, labels in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(images), labels)
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch}: {loss.item():.3f} {self.validate():.3f}")

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.criterion(self.model(images), labels).item() for images, labels in self.val_loader]
        return sum(losses) / len(losses)


if __name__ == "__main__":
    Trainer().fit(7)
