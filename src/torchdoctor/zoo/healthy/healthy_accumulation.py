"""Gradients of four small batches added up before each update, the loss divided accordingly."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(accumulate=4):
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y))
    loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(5):
        optimizer.zero_grad()
        for i, (inputs, labels) in enumerate(loader):
            loss = criterion(model(inputs), labels) / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: {accumulate * loss.item():.4f}")


if __name__ == "__main__":
    main()
