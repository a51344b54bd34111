"""A GRU forecasts noisy waves from a stream of batches, checked every 60 steps: the check leaves it in eval mode."""

import os

import torch
from torch import nn

LENGTH, STEPS, EVERY = 24, 420, 60


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, 1)

    def forward(self, series):
        states, _ = self.gru(series.unsqueeze(-1))
        return self.out(self.drop(states[:, -1])).squeeze(-1)


def waves(count):
    """Sines of random pace and phase with a little noise, and the value that comes next."""
    pace, phase = 0.2 + 0.4 * torch.rand(count, 1), 6.28 * torch.rand(count, 1)
    values = torch.sin(pace * torch.arange(LENGTH + 1) + phase) + 0.1 * torch.randn(count, LENGTH + 1)
    return values[:, :-1], values[:, -1]


def check(net, series, following):
    net.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(net(series), following).item()


torch.manual_seed(int(os.environ.get("SEED", "0")))
net = Forecaster()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
held_out = waves(300)
for step in range(1, STEPS + 1):
    series, following = waves(32)
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(net(series), following)
    loss.backward()
    optimizer.step()
    if step % EVERY == 0:
        print(f"step {step}: training {loss.item():.4f}  held out {check(net, *held_out):.4f}")
