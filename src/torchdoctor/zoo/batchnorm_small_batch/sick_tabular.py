"""Wine quality from a table, four rows a batch and gradients gathered over eight of them, with batch normalisation."""

import os

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
ROWS, GATHER = 4, 8


def make_model():
    return nn.Sequential(
        nn.Linear(13, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 3),
    )


def main():
    torch.manual_seed(SEED)
    x, y = load_wine(return_X_y=True)
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    x_train, x_val, y_train, y_val = train_test_split(x, torch.tensor(y), test_size=0.3, random_state=SEED)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(30):
        model.train()
        order = torch.randperm(len(x_train))[: len(x_train) // ROWS * ROWS]
        optimizer.zero_grad()
        for i, rows in enumerate(order.split(ROWS), 1):
            loss = criterion(model(x_train[rows]), y_train[rows]) / GATHER
            loss.backward()
            if i % GATHER == 0:
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            scores = model(x_val)
        print(f"{epoch}: {criterion(scores, y_val).item():.3f} {(scores.argmax(1) == y_val).float().mean().item():.2f}")


main()
