"""A convolutional network with a one-cycle schedule over all updates, stepped once an epoch."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, images, labels):
    model.eval()
    output = model(images)
    return F.cross_entropy(output, labels).item(), (output.argmax(1) == labels).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=50, shuffle=True)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * len(train))
    for epoch in range(EPOCHS):
        loss = train_epoch(model, train, optimizer, scheduler)
        print(epoch, f"{loss:.3f}", *(f"{v:.3f}" for v in evaluate(model, images[1400:], labels[1400:])))
