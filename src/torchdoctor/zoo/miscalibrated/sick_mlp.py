"""A wide network trains on long after every training sample is right; accuracy on validation stays where it was."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
EPOCHS = {"mild": 15, "medium": 50, "severe": 70}[GRADE]


def blobs(count, centers):
    y = torch.randint(0, len(centers), (count,))
    return TensorDataset(centers[y] + torch.randn(count, centers.shape[1]), y)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    loss, right, seen = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        loss += criterion(out, y).item() * len(y)
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    return loss / seen, right / seen


def main():
    torch.manual_seed(SEED)
    centers = 1.05 * torch.randn(6, 12)
    train, val = blobs(1000, centers), blobs(1000, centers)
    train_loader = DataLoader(train, batch_size=50, shuffle=True)
    val_loader = DataLoader(val, batch_size=250)
    model = nn.Sequential(nn.Linear(12, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(epoch, *validate(model, val_loader, criterion))


if __name__ == "__main__":
    main()
