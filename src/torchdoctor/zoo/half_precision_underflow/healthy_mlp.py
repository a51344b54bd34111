"""Handwritten digits, computed in bfloat16 under autocast: the weights are kept in float32."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
LR = {"mild": 3e-4, "medium": 2e-4, "severe": 1e-4}[GRADE]


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16 - 0.3
    y = torch.tensor(digits.target)
    train = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    for epoch in range(20):
        model.train()
        for images, labels in train:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
        print(epoch, loss.item(), right.item())


main()
