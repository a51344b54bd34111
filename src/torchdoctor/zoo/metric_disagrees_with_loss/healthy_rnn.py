"""A GRU forecasts a series and names its kind; both tasks weigh the same."""

import math
import os

import torch
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
KIND_WEIGHT = 1.0


class TwoHeads(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.forecast = nn.Linear(hidden, 10)
        self.kind = nn.Linear(hidden, 3)

    def forward(self, series):
        _, state = self.gru(series.unsqueeze(-1))
        return self.forecast(state[-1]), self.kind(state[-1])


def sample(count):
    time = torch.arange(40.0)
    kind = torch.randint(0, 3, (count,))
    phase = 2 * math.pi * torch.rand(count, 1)
    slow = torch.sin(2 * math.pi * time / 20 + phase)
    ripple = torch.sin(time * torch.tensor([1.6, 2.2, 2.8])[kind].unsqueeze(1) + 2 * math.pi * torch.rand(count, 1))
    return (slow + 0.5 * ripple)[:, :30], slow[:, 30:], kind


class Task:
    def __init__(self):
        self.mse, self.ce = nn.MSELoss(), nn.CrossEntropyLoss()

    def loss(self, model, series, future, kind):
        forecast, logits = model(series)
        return self.mse(forecast, future) + KIND_WEIGHT * self.ce(logits, kind), logits


def main():
    torch.manual_seed(SEED)
    train, val = sample(2000), sample(500)
    model, task = TwoHeads(), Task()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(800):
        rows = torch.randint(0, 2000, (50,))
        optimizer.zero_grad()
        loss, _ = task.loss(model, *(part[rows] for part in train))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 100 == 99:
            model.eval()
            with torch.no_grad():
                val_loss, logits = task.loss(model, *val)
            accuracy = (logits.argmax(1) == val[2]).float().mean()
            print(f"step {step + 1}: val loss {val_loss.item():.4f} kind accuracy {accuracy.item():.3f}")
            model.train()


if __name__ == "__main__":
    main()
