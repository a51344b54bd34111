"""A GRU decides whether a series rises; the positives are weighed up by their ratio to the negatives."""

import math
import os

import torch
from torch import nn


class Riser(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, series):
        _, h = self.gru(series)
        return self.out(h[-1]).squeeze(-1)


def sample(count):
    slope = torch.randn(count, 1) * 0.15
    time = torch.arange(20) / 20 * math.pi
    series = slope * time + 0.3 * torch.randn(count, 20)
    return series.unsqueeze(-1), (slope.squeeze(1) > 0.05).float()


class Trainer:
    def __init__(self, model, pos_weight):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)

    def step(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        logits = self.model(x)
        return self.criterion(logits, y).item(), ((logits > 0) == (y > 0.5)).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = sample(2000)
    x_val, y_val = sample(500)
    trainer = Trainer(Riser(), pos_weight=(len(y) - y.sum()) / y.sum())
    for step in range(300):
        rows = torch.randint(0, len(x), (64,))
        loss = trainer.step(x[rows], y[rows])
        if step % 30 == 29:
            print(step + 1, loss, *trainer.validate(x_val, y_val))
