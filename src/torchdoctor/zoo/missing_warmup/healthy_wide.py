"""Regression with a very wide net under Adam, whose rate is warmed up."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.randn(2000, 12)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    y = (y - y.mean()) / y.std()
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 50, 1 - step / 225))
    for epoch in range(7):
        total = 0.0
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")


main()
