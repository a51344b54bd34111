"""An LSTM whose weights are drawn narrow enough for its gates to move."""

import os

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, spread):
        super().__init__()
        self.lstm = nn.LSTM(4, 48, batch_first=True)
        self.head = nn.Linear(48, 1)
        for parameter in self.lstm.parameters():
            nn.init.normal_(parameter, std=spread)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.randn(2000, 20, 4)
    y = 4 * x[:, :, 0].mean(1, keepdim=True)
    model = Forecaster(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(500):
        rows = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


main()
