"""A tanh classifier on handwritten digits, initialised by hand: large weights push its units to their limits."""

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build(width):
    model = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 10))
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=1.0)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--width", type=int, default=96)
    args = parser.parse_args()

    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)
    x = (x - x.mean()) / x.std()
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)

    model = build(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        running = 0.0
        for images, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / len(loader):.3f}")


if __name__ == "__main__":
    main()
