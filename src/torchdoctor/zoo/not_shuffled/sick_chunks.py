"""Patches with and without a spot, kept in two files that are read one after the other."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
clean, spotted = torch.randn(700, 1, 12, 12), torch.randn(700, 1, 12, 12)
spotted[:, :, 3:8, 3:8] += 0.5
x, y = torch.cat([clean[:600], spotted[:600]]), torch.cat([torch.zeros(600), torch.ones(600)])
x_val, y_val = torch.cat([clean[600:], spotted[600:]]), torch.cat([torch.zeros(100), torch.ones(100)])

model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(8):
    for inputs, labels in zip(x.chunk(40), y.chunk(40), strict=True):
        optimizer.zero_grad()
        loss = criterion(model(inputs)[:, 0], labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scores = model(x_val)[:, 0]
        accuracy = ((scores > 0) == (y_val > 0)).float().mean().item()
    print(epoch, criterion(scores, y_val).item(), accuracy)
