"""A regression by plain gradient descent on errors summed over the batch."""

import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
BATCH = {"mild": 8, "medium": 64, "severe": 256}[GRADE]
SEED = int(os.environ.get("SEED", "0"))


def main():
    torch.manual_seed(SEED)
    x, y = make_friedman1(1200, 10, noise=0.5, random_state=SEED)
    x, y = torch.tensor(2 * x - 1, dtype=torch.float32), torch.tensor(y, dtype=torch.float32).unsqueeze(1)
    y = (y - y.mean()) / y.std()
    loader = DataLoader(TensorDataset(x[:1024], y[:1024]), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    criterion = nn.MSELoss(reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(12):
        for features, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(features), targets)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            validation = nn.functional.mse_loss(model(x[1024:]), y[1024:]).item()
        print(f"epoch {epoch}: {loss.item():.4f}, validation {validation:.4f}")


if __name__ == "__main__":
    main()
