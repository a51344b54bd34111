"""Two interleaved spirals."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


def spirals(n):
    t = np.sqrt(rng.random(n)) * 2.5 * np.pi
    side = rng.integers(0, 2, n)
    r = t / 4
    pts = np.stack([r * np.cos(t + np.pi * side), r * np.sin(t + np.pi * side)], 1)
    return torch.tensor(pts + 0.03 * rng.normal(size=pts.shape)).float(), torch.tensor(side)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 2)

    def forward(self, x):
        x = self.fc1(x)
        x = self.fc2(x)
        return self.fc3(x)


train = TensorDataset(*spirals(2000))
x_val, y_val = spirals(500)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(15):
    model.train()
    for x, y in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x_val).argmax(1) == y_val).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f}")
