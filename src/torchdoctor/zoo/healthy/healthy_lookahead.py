"""Lookahead around Adam: every five steps the weights go half the way back to the slow ones."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Lookahead:
    def __init__(self, inner, every=5, rate=0.5):
        self.inner = inner
        self.every, self.rate = every, rate
        self.slow = [p.detach().clone() for group in inner.param_groups for p in group["params"]]
        self.steps = 0

    def zero_grad(self):
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.steps += 1
        if self.steps % self.every == 0:
            fast = [p for group in self.inner.param_groups for p in group["params"]]
            for slow, parameter in zip(self.slow, fast, strict=True):
                slow.lerp_(parameter, self.rate)
                parameter.copy_(slow)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y))
    train_set, validation_set = random_split(dataset, [1500, 297])
    train_loader = DataLoader(train_set, batch_size=60, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=99)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = Lookahead(torch.optim.Adam(model.parameters(), lr=3e-3))
    for epoch in range(10):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in validation_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / len(validation_set):.3f}")


main()
