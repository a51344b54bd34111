"""A trainer class that fits sensor powers on a logarithmic scale, with one added before the logarithm."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Readings(Dataset):
    """Powers of sixteen sensors; a sensor that is out of reach reads zero."""

    def __init__(self, count, seed):
        random = np.random.default_rng(seed)
        power = random.gamma(2.0, 5.0, size=(count, 16))
        power[random.random((count, 16)) < 0.0005] = 0.0
        self.distance = torch.tensor(power[:, :4].mean(1) / 10 - 1, dtype=torch.float32)
        self.power = power

    def __len__(self):
        return len(self.power)

    def __getitem__(self, index):
        features = np.log1p(self.power[index])
        return torch.tensor(features, dtype=torch.float32), self.distance[index]


class Trainer:
    def __init__(self, model, loader, lr):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.loss = nn.SmoothL1Loss()

    def step(self, features, distance):
        prediction = self.model(features).squeeze(1)
        loss = self.loss(prediction, distance)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(*batch) for batch in self.loader]
            print(f"epoch {epoch}: {np.mean(losses):.4f}")


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "1")))
    readings = Readings(2000, seed=1)
    network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
    Trainer(network, DataLoader(readings, batch_size=50, shuffle=True), lr=2e-3).fit(5)
