"""A classifier of handwritten digits in float16, with an epsilon for Adam that float16 holds."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


def build():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(digits.target)
    model = build().half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
    for epoch in range(6):
        for rows in torch.randperm(len(x)).split(64):
            logits = model(x[rows].half())
            loss = F.cross_entropy(logits.float(), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
