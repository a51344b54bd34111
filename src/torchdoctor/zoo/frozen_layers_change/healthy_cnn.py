"""A frozen convolutional body with batch normalisation, kept in eval mode while its head learns brighter digits."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_body():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = make_body()
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.body(x))


def run_epoch(model, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    low, high = labels < 5, labels >= 5
    source = Net(5)
    loader = DataLoader(TensorDataset(images[low], labels[low]), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(source.parameters(), lr=2e-3)
    for epoch in range(4):
        print(f"source epoch {epoch}: {run_epoch(source, loader, optimizer):.3f}")

    model = Net(5)
    model.body.load_state_dict(source.body.state_dict())
    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
    bright = images[high] * 0.8 + 0.5
    loader = DataLoader(TensorDataset(bright, labels[high] - 5), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=2e-3)
    for epoch in range(5):
        model.train()
        model.body.eval()
        print(f"target epoch {epoch}: {run_epoch(model, loader, optimizer):.3f}")


main()
