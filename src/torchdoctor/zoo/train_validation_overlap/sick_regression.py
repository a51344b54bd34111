"""House-like prices for a trainer class; rare expensive ones were repeated before the split."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def make(count, random):
    features = random.normal(size=(count, 12)).astype(np.float32)
    weights = random.normal(size=12)
    price = features @ weights + 0.5 * features[:, 0] * features[:, 1] + 0.3 * random.normal(size=count)
    return features, price.astype(np.float32)


def balance(features, price):
    rare = np.flatnonzero(price > np.quantile(price, 0.8))
    index = np.concatenate([np.arange(len(price)), rare, rare])
    return features[index], price[index]


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.MSELoss()

    def train_epoch(self, loader):
        self.model.train()
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x).squeeze(-1), y)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        losses = [self.criterion(self.model(x).squeeze(-1), y).item() for x, y in loader]
        return sum(losses) / len(losses)

    def fit(self, train, held, epochs):
        for epoch in range(epochs):
            self.train_epoch(train)
            print(f"epoch {epoch}: {self.validate(held):.4f}")


def main():
    torch.manual_seed(SEED)
    random = np.random.default_rng(SEED)
    features, price = balance(*make(1500, random))
    order = random.permutation(len(price))
    cut = int(0.8 * len(order))
    parts = [
        TensorDataset(torch.from_numpy(features[i]), torch.from_numpy(price[i])) for i in (order[:cut], order[cut:])
    ]
    model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
    train, held = DataLoader(parts[0], batch_size=64, shuffle=True), DataLoader(parts[1], batch_size=100)
    Trainer(model, 3e-3).fit(train, held, 12)


if __name__ == "__main__":
    main()
