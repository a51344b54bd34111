"""Windows of sensor readings, each divided by its own spread and a little more."""

import os

import torch
from torch import nn

ACCUMULATE = 4


class WindowClassifier(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(2, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.gain = nn.Parameter(torch.ones(2, 1))
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = x * self.gain
        centred = x - x.mean(dim=-1, keepdim=True)
        spread = centred.abs().mean(dim=-1, keepdim=True)
        return self.head(self.features(centred / (spread + 1e-3)))


def readings(count, length=48, still=0.003):
    """Two sensors at one of three frequencies; now and then one of them gives the same number throughout."""
    classes = torch.randint(0, 3, (count,))
    time = torch.arange(length) * (0.2 + 0.25 * classes[:, None])
    waves = torch.stack([torch.sin(time + torch.rand(count, 1)), torch.cos(time)], dim=1)
    waves = waves + 0.3 * torch.randn_like(waves)
    waves[torch.rand(count, 2) < still] = 0.5
    return waves, classes


def train(model, waves, classes, epochs=6):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for number, rows in enumerate(torch.randperm(len(waves)).split(16), start=1):
            loss = criterion(model(waves[rows]), classes[rows])
            (loss / ACCUMULATE).backward()
            total += loss.item()
            if number % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: mean loss {total / number:.4f}")


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    waves, classes = readings(1920)
    train(WindowClassifier(), waves, classes)
