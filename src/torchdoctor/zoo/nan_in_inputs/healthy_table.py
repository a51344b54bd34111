"""A classifier on a table of measurements, standardised column by column with a floor under the spread."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load():
    features, labels = load_digits(return_X_y=True)
    x = torch.tensor(features, dtype=torch.float32)
    y = torch.tensor(labels)
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    x = (x - mean) / std
    return TensorDataset(x[:1400], y[:1400]), TensorDataset(x[1400:], y[1400:])


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    total, right = 0.0, 0
    for x, y in loader:
        output = model(x)
        total += criterion(output, y).item() * len(x)
        right += (output.argmax(1) == y).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    training, validation = load()
    loader = DataLoader(training, batch_size=64, shuffle=True)
    held_out = DataLoader(validation, batch_size=256)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        loss = train_epoch(model, loader, optimizer, criterion)
        val_loss, accuracy = evaluate(model, held_out, criterion)
        print(f"epoch {epoch}: loss {loss:.4f}, validation {val_loss:.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
