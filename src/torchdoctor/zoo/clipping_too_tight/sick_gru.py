"""A GRU forecaster whose gradients are cut to a thousandth of their norm."""

import os

import torch
from torch import nn

MAX_NORM = 1e-3


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    time = 0.1 * torch.arange(3000)
    wave = torch.sin(time) + 0.5 * torch.sin(2.7 * time)
    windows = wave.unfold(0, 25, 1)
    x, y = windows[:, :24].unsqueeze(-1), windows[:, 24:]
    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(500):
        rows = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


main()
