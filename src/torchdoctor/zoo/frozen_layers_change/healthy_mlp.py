"""Digits in two stages: the body is frozen after the first, and the second has an optimizer of its own."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x))


def train_one_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y))
    train_set, test_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=99)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for epoch in range(8):
        if epoch == 4:
            for parameter in model.body.parameters():
                parameter.requires_grad = False
            optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        loss = train_one_epoch(model, train_loader, optimizer)
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model, test_loader):.3f}")


main()
