"""A GRU that tells which of three generators made a series."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class SeriesClassifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 3)

    def forward(self, x):
        _, h = self.gru(x)
        return self.fc(h.squeeze(0))


def series(n, length=30):
    t = torch.linspace(0, 6.28, length)
    kind = torch.randint(0, 3, (n,))
    freq = torch.tensor([1.0, 2.0, 4.0])[kind]
    x = torch.sin(freq[:, None] * t + 6.28 * torch.rand(n, 1)) + 0.2 * torch.randn(n, length)
    return x.unsqueeze(-1), kind


model = SeriesClassifier()
criterion = nn.NLLLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(300):
    x, y = series(64)
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.3f} acc {(out.argmax(1) == y).float().mean():.3f}")
