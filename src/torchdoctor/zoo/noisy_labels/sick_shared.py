"""Digits collected from many hands: the labels of training and validation come from the same hurried annotators."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HURRIED = {"mild": 0.15, "medium": 0.3, "severe": 0.45}[os.environ.get("GRADE", "medium")]
torch.manual_seed(int(os.environ.get("SEED", "0")))
pictures, digits = load_digits(return_X_y=True)
pictures, digits = torch.tensor(pictures, dtype=torch.float32) / 16, torch.tensor(digits)
slips = torch.rand(len(digits)) < HURRIED
digits = torch.where(slips, (digits + torch.randint(1, 10, digits.shape)) % 10, digits)
x, x_val, y, y_val = train_test_split(pictures, digits, test_size=0.25, random_state=0)

model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Dropout(0.2), nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(25):
    model.train()
    order = torch.randperm(len(x))
    for start in range(0, len(x), 64):
        rows = order[start : start + 64]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(x_val)
        accuracy = (scores.argmax(1) == y_val).float().mean().item()
    print(f"epoch {epoch}: validation loss {F.cross_entropy(scores, y_val).item():.3f}, accuracy {accuracy:.3f}")
