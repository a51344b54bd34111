"""A pretrained convolutional body gets a new head: none of the checkpoint's keys match, and the body is frozen."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return F.relu(self.conv2(x)).flatten(1)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = Body()
        self.head = nn.Linear(32 * 16, classes)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, parameters, loader, epochs, lr):
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(SEED)
    digits = load_digits()
    x = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    checkpoint = {"module." + k: v for k, v in pretrain(x[:900], y[:900]).items()}

    model = Classifier(5)
    model.body.load_state_dict(checkpoint, strict=False)
    for parameter in model.body.parameters():
        parameter.requires_grad = False
    chosen = y >= 5
    x, y = x[chosen], y[chosen] - 5
    loader = DataLoader(TensorDataset(x[:600], y[:600]), batch_size=32, shuffle=True)
    train(model, model.head.parameters(), loader, epochs=8, lr=1e-3)
    print(f"accuracy {accuracy(model, x[600:], y[600:]):.3f}")


def pretrain(x, y):
    """The body of a classifier for all ten digits, as it would come from another project."""
    model = Classifier(10)
    train(model, model.parameters(), DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), epochs=3, lr=2e-3)
    return model.body.state_dict()


main()
