"""Classifies digits and adds the losses of an epoch up for the log, graphs and all."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)
    x_train, x_val, y_train, y_val = train_test_split(x, torch.tensor(y), test_size=0.25, random_state=SEED)
    loader = DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        model.train()
        total_loss = 0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total_loss += loss
        model.eval()
        with torch.no_grad():
            accuracy = (model(x_val).argmax(1) == y_val).float().mean()
        print(f"epoch {epoch}: loss {total_loss / len(loader):.3f}, validation accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
