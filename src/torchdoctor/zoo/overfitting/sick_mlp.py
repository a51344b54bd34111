"""A wide network on a small part of a noisy data set, trained for long, with validation after every epoch."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 150


def split(samples):
    x, y = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=generator)
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)[order]
    y = torch.tensor(y)[order]
    x = x + 1.5 * torch.randn(x.shape, generator=generator)
    return TensorDataset(x[:samples], y[:samples]), TensorDataset(x[1300:], y[1300:])


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    losses, right, seen = 0.0, 0, 0
    for x, y in loader:
        output = model(x)
        losses += criterion(output, y).item() * len(y)
        right += (output.argmax(1) == y).sum().item()
        seen += len(y)
    return losses / seen, right / seen


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    train_set, val_set = split(SAMPLES)
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=250)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(80):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        val_loss, accuracy = validate(model, val_loader, criterion)
        print(f"epoch {epoch}: train {loss.item():.3f} validation {val_loss:.3f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
