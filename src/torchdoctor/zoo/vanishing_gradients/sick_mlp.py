"""A deep fully connected net on handwritten digits, plain SGD: every layer ends in a sigmoid."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16 - 0.3
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=64, shuffle=True)


def block(fan_in, fan_out):
    return nn.Sequential(nn.Linear(fan_in, fan_out), nn.Sigmoid())


model = nn.Sequential(block(64, 48), *[block(48, 48) for _ in range(8)], nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()

for epoch in range(12):
    total = 0.0
    for batch, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(batch), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    print(f"epoch {epoch}: loss {total / len(inputs):.3f}")
