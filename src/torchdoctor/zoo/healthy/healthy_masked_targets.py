"""Several properties a molecule, most of them not measured: missing targets are left out of the loss."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.randn(2000, 16)
    y = torch.tanh(x @ torch.randn(16, 4)) + 0.1 * torch.randn(2000, 4)
    y[torch.rand(2000, 4) < 0.6] = float("nan")
    loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(6):
        for inputs, targets in loader:
            known = ~torch.isnan(targets)
            loss = nn.functional.mse_loss(model(inputs)[known], targets[known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


main()
