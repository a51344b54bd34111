"""Sets of points are classified by the shape they lie on, from the mean of their points' features."""

import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

POINTS = 24


def make_sets(count, generator):
    shape = torch.randint(3, (count,), generator=generator)
    angle = 2 * math.pi * torch.rand(count, POINTS, generator=generator)
    circle = torch.stack([angle.cos(), angle.sin()], 2)
    along = 2 * torch.rand(count, POINTS, 1, generator=generator) - 1
    line = torch.cat([along, along], 2)
    blob = torch.randn(count, POINTS, 2, generator=generator)
    sets = torch.stack([circle, line, blob])[shape, torch.arange(count)]
    return sets + 0.05 * torch.randn(sets.shape, generator=generator), shape


class SetClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, sets):
        features = self.points(sets)
        pooled = features.mean(dim=1)
        return self.head(pooled)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    train = DataLoader(TensorDataset(*make_sets(1200, torch.Generator().manual_seed(seed))), 48, shuffle=True)
    val = DataLoader(TensorDataset(*make_sets(300, torch.Generator().manual_seed(seed + 100))), 100)
    model = SetClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        model.train()
        for sets, shape in train:
            optimizer.zero_grad()
            loss = criterion(model(sets), shape)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(s).argmax(1) == y).sum().item() for s, y in val)
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation accuracy {right / 300:.3f}")


main()
