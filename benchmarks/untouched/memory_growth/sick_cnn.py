"""Digit CNN that keeps its feature maps for a later analysis."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
CHANNELS = {"mild": 8, "medium": 32, "severe": 64}[os.environ.get("GRADE", "medium")]

d = load_digits()
images = nn.functional.interpolate(torch.tensor(d.images).float()[:, None] / 16, size=16)
loader = DataLoader(TensorDataset(images, torch.tensor(d.target)), batch_size=64, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.head = nn.Linear(CHANNELS * 16, 10)
        self.feature_maps = []

    def forward(self, x):
        f = torch.relu(self.conv(x))
        self.feature_maps.append(f.detach().clone())
        return self.head(nn.functional.adaptive_avg_pool2d(f, 4).flatten(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(5):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    kept = sum(f.numel() for f in net.feature_maps) * 4 / 2**20
    print(f"epoch {epoch} loss {total:.4f} kept {kept:.0f} MiB")
