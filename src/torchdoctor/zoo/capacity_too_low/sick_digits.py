"""Ten digits have to pass through a hidden layer with hardly any units."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
UNITS = {"mild": 3, "medium": 2, "severe": 1}[GRADE]


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)
    x_train, x_val, y_train, y_val = train_test_split(x, torch.tensor(y), test_size=0.25, random_state=SEED)
    loader = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(64, UNITS), nn.Tanh(), nn.Linear(UNITS, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(40):
        model.train()
        for images, digits in loader:
            loss = F.cross_entropy(model(images), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = F.cross_entropy(model(x_val), y_val)
        print(f"epoch {epoch}: train {loss.item():.3f} validation {val.item():.3f}")


main()
