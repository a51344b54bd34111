"""An energy model in half precision: scores are squared features."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(16, 32)
        self.readout = nn.Linear(32, 1)

    def forward(self, x):
        h = self.features(x)
        power = h * h
        return self.readout(power).squeeze(1)


steps = AT + 20
points = torch.randn(steps * BATCH, 16)
targets = points.pow(2).mean(dim=1)
order = torch.randperm(len(points))
points[order[(AT - 1) * BATCH + 21]] = 1000.0
points, targets = points.half(), targets.half()

model = Energy().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(steps):
    rows = order[step * BATCH : (step + 1) * BATCH]
    loss = nn.functional.mse_loss(model(points[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
