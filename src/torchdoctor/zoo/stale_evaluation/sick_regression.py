"""Regression in a trainer class; it reports an average of the weights that nobody moves along."""

import copy
import os

import torch
from sklearn.datasets import make_regression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, net, train_data, val_data, decay=0.95):
        self.net = net
        self.average = copy.deepcopy(net).requires_grad_(False)
        self.decay = decay
        self.train_data, self.val_data = train_data, val_data
        self.optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)

    @torch.no_grad()
    def update_average(self):
        for mean, value in zip(self.average.parameters(), self.net.parameters(), strict=True):
            mean = self.decay * mean + (1 - self.decay) * value

    def train_epoch(self):
        for x, y in self.train_data:
            loss = nn.functional.mse_loss(self.net(x).squeeze(-1), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.update_average()
        return loss.item()

    @torch.no_grad()
    def score(self):
        total = sum(nn.functional.mse_loss(self.average(x).squeeze(-1), y, reduction="sum") for x, y in self.val_data)
        return total.item() / len(self.val_data.dataset)

    def fit(self, epochs):
        for epoch in range(epochs):
            print(f"epoch {epoch}: train {self.train_epoch():.4f}, validation {self.score():.4f}")


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_regression(1200, 12, noise=5.0, random_state=seed)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    y = (y - y.mean()) / y.std()
    train = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=50, shuffle=True)
    held_out = DataLoader(TensorDataset(x[1000:], y[1000:]), batch_size=100)
    net = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 1))
    Trainer(net, train, held_out).fit(12)


main()
