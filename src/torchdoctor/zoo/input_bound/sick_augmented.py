"""Small images with random shifts and noise, done sample by sample while they are loaded."""

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
        return augment(self.images[index]), self.labels[index]


def augment(image):
    """Shift by up to one pixel, blur a little and add noise."""
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    shifted = torch.zeros_like(image)
    for row in range(8):
        for column in range(8):
            shifted[row, column] = image[(row + dx) % 8, (column + dy) % 8]
    return shifted + 0.05 * torch.randn_like(shifted)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    loader = DataLoader(Digits(), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
