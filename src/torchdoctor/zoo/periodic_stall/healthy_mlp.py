"""Digits with a checkpoint once an epoch, which holds what resuming needs."""

import os
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y)
    loader = DataLoader(TensorDataset(x, y), batch_size=60, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(8):
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % 30 == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, Path(folder) / "last.pt")
            print(f"epoch {epoch}: {loss.item():.3f}")


main()
