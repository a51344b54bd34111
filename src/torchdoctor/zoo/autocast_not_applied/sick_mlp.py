"""Digits in mixed precision, they say: the autocast block holds the loss only."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y))
    train_set, validation_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=99)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            outputs = model(images)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in validation_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / len(validation_set):.3f}")


main()
