"""Regression that goes back to its best weights and lowers the rate by a fifth whenever an epoch was worse."""

import copy
import os

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(model(x), y, reduction="sum").item() for x, y in loader)
    return total / len(loader.dataset)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    x, y = make_friedman1(1500, 10, noise=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32).unsqueeze(1)
    train_loader = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=40, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[1200:], y[1200:]), batch_size=100)
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best, kept = float("inf"), copy.deepcopy(model.state_dict())
    for epoch in range(15):
        model.train()
        for xb, yb in train_loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = evaluate(model, val_loader)
        print(f"epoch {epoch}: train {loss.item():.4f}, validation {score:.4f}")
        if score < best:
            best, kept = score, copy.deepcopy(model.state_dict())
        else:
            model.load_state_dict(kept)
            for group in optimizer.param_groups:
                group["lr"] *= 0.8


main()
