"""A digit CNN with separate functions for the two splits."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
shuffle = torch.randperm(len(images))
train_i, val_i = shuffle[:1400], shuffle[1400:]
mean, std = images[train_i].mean(), images[train_i].std()


def train_transform(x):
    return (x - mean) / std


def val_transform(x):
    if GRADE == "mild":
        return x / 16
    if GRADE == "medium":
        return x
    return x * 16  # 8 bit grey levels


model = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(12, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(96, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(8):
    model.train()
    seen = 0.0
    for idx in train_i[torch.randperm(len(train_i))].split(70):
        loss = F.cross_entropy(model(train_transform(images[idx])), labels[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        parts = [(model(val_transform(images[i])), labels[i]) for i in val_i.split(100)]
    val_loss = sum(F.cross_entropy(o, t, reduction="sum").item() for o, t in parts) / len(val_i)
    val_acc = sum((o.argmax(1) == t).sum().item() for o, t in parts) / len(val_i)
    print(f"epoch {epoch} train {seen / len(train_i):.4f} val {val_loss:.4f} val acc {val_acc:.3f}")
