"""Digits by a convolutional network, interrupted and resumed: all of the checkpoint is loaded."""

import os
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def make_loaders():
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train, val = train_test_split(range(len(images)), test_size=0.2, random_state=SEED)
    train_set, val_set = TensorDataset(images[train], labels[train]), TensorDataset(images[val], labels[val])
    return DataLoader(train_set, 32, shuffle=True), DataLoader(val_set, 256)


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def train(path, epochs, resume=False):
    train_loader, val_loader = make_loaders()
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    start = 0
    if resume:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        start = checkpoint["epoch"]
    for epoch in range(start, start + epochs):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / len(val_loader.dataset):.3f}")
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "epoch": epoch + 1,
        }
        torch.save(state, path)


def main():
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "last.pt", epochs=4)
        train(Path(folder) / "last.pt", epochs=4, resume=True)


main()
