"""A convolutional network on digits whose rate is cut to a tenth after every epoch."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
GAMMA = {"mild": 0.3, "medium": 0.1, "severe": 0.01}[GRADE]


def main():
    torch.manual_seed(SEED)
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train, val = train_test_split(range(len(images)), test_size=0.2, random_state=SEED)
    train_loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=32, shuffle=True)
    val_loader = DataLoader(TensorDataset(images[val], labels[val]), batch_size=256)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=1, gamma=GAMMA)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            val_loss = sum(criterion(model(x), y).item() * len(x) for x, y in val_loader) / len(val_loader.dataset)
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation {val_loss:.3f}")


if __name__ == "__main__":
    main()
