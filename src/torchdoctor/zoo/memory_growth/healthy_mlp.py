"""Regression by a network that keeps the spread of its hidden activations for a figure."""

import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
KEPT_ROWS = {"mild": 16, "medium": 250, "severe": 500}[GRADE]


class Network(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.first = nn.Linear(10, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)
        self.hidden = None

    def forward(self, x):
        hidden = torch.tanh(self.second(torch.tanh(self.first(x))))
        self.hidden = hidden.detach()
        return self.head(hidden).squeeze(-1)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_friedman1(5000, 10, noise=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)
    loader = DataLoader(TensorDataset(x, y), batch_size=500, shuffle=True)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    activations = []
    for epoch in range(40):
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            activations.append(model.hidden[:KEPT_ROWS].std().item())
        if epoch % 5 == 4:
            print(f"epoch {epoch}: loss {loss.item():.4f}, spread {activations[-1]:.3f}")


main()
