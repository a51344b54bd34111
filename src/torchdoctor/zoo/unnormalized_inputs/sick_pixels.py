"""A small convolutional network on grey images, pixels used as they are stored."""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Digits stored the way image files are: one byte a pixel."""

    def __init__(self, part):
        digits = load_digits()
        pixels = np.round(digits.images * 255 / 16).astype(np.uint8)
        self.pixels, self.labels = pixels[part], digits.target[part]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.pixels[index]).float().unsqueeze(0)
        return image, int(self.labels[index])


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.fc1 = nn.Linear(2 * width * 16, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "0")))
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    loader = DataLoader(Images(slice(0, 1500)), batch_size=50, shuffle=True)
    held_out = DataLoader(Images(slice(1500, None)), batch_size=100)
    model = Net(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for image, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for image, label in held_out:
                right += (model(image).argmax(1) == label).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right / len(held_out.dataset):.3f}")


if __name__ == "__main__":
    main()
