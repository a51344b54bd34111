"""Hits are added up over the batches and divided by the number of samples."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
BATCH_SIZE = 128


def load():
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x))
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)[order]
    y = torch.tensor(y)[order]
    train, val = TensorDataset(x[:1397], y[:1397]), TensorDataset(x[1397:], y[1397:])
    return DataLoader(train, batch_size=BATCH_SIZE, shuffle=True), DataLoader(val, batch_size=50)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    loss, right = 0.0, 0
    for x, y in loader:
        logits = model(x)
        loss += criterion(logits, y).item()
        right += (logits.argmax(dim=1) == y).sum().item()
    return loss / len(loader), right / len(loader.dataset)


def main():
    torch.manual_seed(SEED)
    train_loader, val_loader = load()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        val_loss, val_accuracy = evaluate(model, val_loader, criterion)
        print(f"epoch {epoch + 1}: val_loss={val_loss:.4f} val_accuracy={val_accuracy:.4f}")


if __name__ == "__main__":
    main()
