"""Digits by a small network; every epoch scores a fresh copy of it."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    losses, correct = [], 0
    for images, labels in loader:
        outputs = model(images)
        losses.append(criterion(outputs, labels).item())
        correct += (outputs.argmax(1) == labels).sum().item()
    return sum(losses) / len(losses), correct / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y))
    train_set, validation_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=99)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        loss = train_one_epoch(model, train_loader, criterion, optimizer)
        scored = copy.deepcopy(model)
        val_loss, accuracy = validate(scored, validation_loader, criterion)
        print(f"epoch {epoch}: loss {loss:.3f}, val loss {val_loss:.3f}, val accuracy {accuracy:.3f}")


main()
