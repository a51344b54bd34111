"""Small images with random shifts and noise, done for a whole batch of tensors at once."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self):
        digits = load_digits()
        self.images = torch.tensor(digits.images / 16, dtype=torch.float32)
        self.labels = torch.tensor(digits.target)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def augment(images):
    """Shift by up to one pixel and add noise."""
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    images = torch.roll(images, (dx, dy), dims=(-2, -1))
    return images + 0.05 * torch.randn_like(images)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    loader = DataLoader(Digits(), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for images, labels in loader:
            loss = F.cross_entropy(model(augment(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
