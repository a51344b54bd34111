"""A convolutional network trained on four images at a time, so its loss jumps about while it falls."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=4, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if i % 150 == 0:
            print(epoch, i, f"{loss.item():.3f}")
