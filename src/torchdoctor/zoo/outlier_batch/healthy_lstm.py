"""Next-day demand from two weeks of sales with an LSTM; the table is as the till wrote it."""

import os

import numpy as np
import torch
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)


def read_sales(random):
    days = np.arange(60)
    level = random.normal(0, 0.5, (120, 1))
    sales = level + np.sin(2 * np.pi * days / 7 + random.uniform(0, 6, (120, 1))) + 0.1 * random.normal(size=(120, 60))
    return sales.astype(np.float32)


def windows(sales):
    x = np.concatenate([sales[:, i : i + 14] for i in range(0, 46, 2)])
    y = np.concatenate([sales[:, i + 14] for i in range(0, 46, 2)])
    return torch.tensor(x).unsqueeze(-1), torch.tensor(y)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1]).squeeze(-1)


def main():
    random = np.random.default_rng(SEED)
    sales = read_sales(random)
    x, y = windows(sales[:96])
    val_x, val_y = windows(sales[96:])
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        model.train()
        for index in torch.randperm(len(x)).split(32):
            loss = nn.functional.mse_loss(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = nn.functional.mse_loss(model(val_x), val_y)
        print(f"epoch {epoch}: {val_loss.item():.4f}")


if __name__ == "__main__":
    main()
