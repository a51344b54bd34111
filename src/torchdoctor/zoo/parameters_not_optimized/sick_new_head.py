"""A net for ten digits is given a new head for two classes before training: the optimizer was built before."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
is_even = torch.tensor(digits.target % 2 == 0, dtype=torch.long)
loader = DataLoader(TensorDataset(x, is_even), batch_size=64, shuffle=True)

model = nn.Sequential()
model.add_module("features", nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()))
model.add_module("head", nn.Linear(256, 10))

optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
model.head = nn.Linear(256, 2)

for epoch in range(4):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
