"""An LSTM that forecasts a series in the order of time, window after window, unshuffled on purpose."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, window):
        return self.out(self.lstm(window)[0][:, -1])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    t = torch.arange(1400.0)
    series = torch.sin(t / 25) + 0.5 * torch.sin(t / 7) + 0.1 * torch.randn(1400) + t / 1400
    windows = series.unfold(0, 24, 1)[:-1].unsqueeze(-1)
    targets = series[24:].unsqueeze(-1)
    loader = DataLoader(TensorDataset(windows, targets), batch_size=32, shuffle=False)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(4):
        for window, target in loader:
            loss = nn.functional.mse_loss(model(window), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


main()
