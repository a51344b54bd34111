"""Images and labels are brought into one random order."""

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def load():
    random = np.random.default_rng(SEED)
    images, labels = load_digits(return_X_y=True)
    order = random.permutation(len(images))
    images, labels = images[order], labels[order]
    x = torch.tensor(images / 8 - 1, dtype=torch.float32)
    y = torch.tensor(labels)
    return TensorDataset(x[:1200], y[:1200]), TensorDataset(x[1200:], y[1200:])


def main():
    torch.manual_seed(SEED)
    train, val = load()
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    val_loader = DataLoader(val, batch_size=200)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(25):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        val_loss = right = 0
        with torch.no_grad():
            for x, y in val_loader:
                output = model(x)
                val_loss += criterion(output, y).item() * len(y)
                right += (output.argmax(1) == y).sum().item()
        print(f"epoch {epoch} train {loss.item():.3f} val {val_loss / len(val):.3f} acc {right / len(val):.3f}")


if __name__ == "__main__":
    main()
