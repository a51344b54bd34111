"""A convolutional network with batch normalisation on a one-cycle schedule that peaks high."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=50, shuffle=True)
    test = DataLoader(TensorDataset(images[1500:], labels[1500:]), batch_size=300)
    model = nn.Sequential(
        block(1, 16), nn.MaxPool2d(2), block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    epochs = 6
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=epochs * len(train))
    for epoch in range(epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            accuracy = sum((model(x).argmax(1) == y).sum().item() for x, y in test) / len(test.dataset)
        print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
