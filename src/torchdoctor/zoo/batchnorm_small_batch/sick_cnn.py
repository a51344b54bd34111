"""Digits, two or four images at a time for lack of memory, through a convolutional net with batch normalisation."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

GRADE = os.environ.get("GRADE", "medium")
BATCH = {"mild": 4, "medium": 3, "severe": 2}[GRADE]
torch.manual_seed(int(os.environ.get("SEED", "0")))

digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
train_set, val_set = random_split(TensorDataset(images, torch.tensor(digits.target)), [1400, 397])
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
val_loader = DataLoader(val_set, batch_size=128)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(2):
    model.train()
    for step, (x, y) in enumerate(train_loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"epoch {epoch} step {step}: {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y).item() for x, y in val_loader]
    print(f"epoch {epoch}: validation {sum(losses) / len(losses):.3f}")
