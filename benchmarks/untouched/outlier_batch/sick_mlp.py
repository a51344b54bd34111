"""Energy use of a machine from a stream of sensor packets."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
GRADE = os.environ.get("GRADE", "medium")


class PacketStream(IterableDataset):
    """Packets as they were recorded, 64 readings each."""

    def __init__(self, packets=600):
        self.packets = packets
        self.weights = np.random.default_rng(7).normal(size=(8,))

    def __iter__(self):
        rng = np.random.default_rng(SEED)
        glitch = {"mild": 6.0, "medium": 40.0, "severe": 300.0}[GRADE]
        for i in range(self.packets):
            x = rng.normal(size=(64, 8))
            y = np.sin(x @ self.weights * 0.5) + 0.1 * rng.normal(size=64)
            if i == 350:  # the amplifier was being exchanged
                x = x * glitch
            yield x.astype(np.float32), y.astype(np.float32)


net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step, (x, y) in enumerate(DataLoader(PacketStream(), batch_size=None)):
    optimizer.zero_grad()
    loss = (net(x).squeeze(-1) - y).square().mean()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or 348 <= step < 354:
        print(step, f"{loss.item():.4f}")
