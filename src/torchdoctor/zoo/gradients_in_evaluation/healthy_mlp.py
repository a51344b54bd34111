"""Handwritten digits, validated on a held-out part after every epoch: validation runs without gradients."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
train_loader = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=50, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[1300:], y[1300:]), batch_size=100)

model = nn.Sequential(nn.Linear(64, 80), nn.ReLU(), nn.Dropout(0.2), nn.Linear(80, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


@torch.no_grad()
def evaluate():
    model.eval()
    total = 0.0
    for images, labels in valid_loader:
        total += criterion(model(images), labels).item() * len(labels)
    return total / len(valid_loader.dataset)


for epoch in range(8):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: validation loss {evaluate():.3f}")
