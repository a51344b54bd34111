"""An LSTM that names the kind of a wave, with most of each label smoothed away."""

import os

import torch
from torch import nn

SMOOTHING = {"mild": 0.3, "medium": 0.8, "severe": 0.95}[os.environ.get("GRADE", "medium")]


class Namer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def draw(count):
    kind = torch.randint(0, 4, (count,))
    time = torch.linspace(0, 6, 20)
    waves = torch.sin(time * (1 + kind.unsqueeze(1)) + torch.rand(count, 1))
    return (waves + 0.2 * torch.randn(waves.shape)).unsqueeze(2), kind


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = Namer()
criterion = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(200):
    x, y = draw(32)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, f"{loss.item():.3f}")
