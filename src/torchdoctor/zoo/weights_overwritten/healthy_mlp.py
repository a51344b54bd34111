"""Digits with a best-weights keeper: the best ones come back when training is over."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class BestWeights:
    def __init__(self, model):
        self.model = model
        self.score = 0.0
        self.state = copy.deepcopy(model.state_dict())

    def update(self, score):
        if score > self.score:
            self.score = score
            self.state = copy.deepcopy(self.model.state_dict())

    def restore(self):
        self.model.load_state_dict(self.state)


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
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
    train_set, validation_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=99)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    best = BestWeights(model)
    for epoch in range(8):
        loss = train_one_epoch(model, train_loader, criterion, optimizer)
        score = accuracy(model, validation_loader)
        best.update(score)
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {score:.3f}, best {best.score:.3f}")
    best.restore()
    print(f"restored: {accuracy(model, validation_loader):.3f}")


main()
