"""A CNN on digits whose loop counts steps and takes a batch from a fresh iterator each time."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

digits = load_digits()
order = torch.randperm(len(digits.target))
images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)[order]
labels = torch.tensor(digits.target)[order]
train_loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=64)
val_loader = DataLoader(TensorDataset(images[1400:], labels[1400:]), batch_size=200)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 16, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            total += criterion(model(x), y).item() * len(y)
    model.train()
    return total / len(val_loader.dataset)


for step in range(400):
    x, y = next(iter(train_loader))
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: train {loss.item():.3f} validation {evaluate():.3f}")
