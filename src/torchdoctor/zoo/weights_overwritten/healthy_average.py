"""A moving average of the weights is kept beside the model and evaluated."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(15):
        for rows in torch.randperm(1500).split(50):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.005)
        with torch.no_grad():
            accuracy = (average(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy of the average {accuracy:.3f}")


main()
