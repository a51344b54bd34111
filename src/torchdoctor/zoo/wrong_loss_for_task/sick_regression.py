"""Predicts a position in the plane, two quantities, with the loss of the classifier it was copied from."""

import os

import torch
from sklearn.datasets import make_regression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(seed):
    x, y = make_regression(442, 10, n_targets=2, noise=5.0, random_state=seed)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    return x, (y - y.mean(0)) / y.std(0)


class Fitting:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def epoch(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            value = self.loss(self.model(x), y)
            value.backward()
            self.optimizer.step()
        return value.item()


if __name__ == "__main__":
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = load(seed)
    fitting = Fitting()
    loader = DataLoader(TensorDataset(x[:350], y[:350]), batch_size=25, shuffle=True)
    for number in range(12):
        last = fitting.epoch(loader)
        with torch.no_grad():
            held_out = fitting.loss(fitting.model(x[350:]), y[350:]).item()
        print(number, f"{last:.4f} {held_out:.4f}")
