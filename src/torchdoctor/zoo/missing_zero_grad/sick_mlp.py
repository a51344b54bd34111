"""Handwritten digits, one function to train and one to validate: gradients are never cleared."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    for images, labels in loader:
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
    return loss.item()


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
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y))
    train_set, validation_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=99)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(8):
        loss = train_one_epoch(model, train_loader, criterion, optimizer)
        print(epoch, round(loss, 3), *validate(model, validation_loader, criterion))


main()
