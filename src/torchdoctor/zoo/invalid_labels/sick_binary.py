"""A binary classifier whose answers come, and are used, as plus and minus one."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "9")))


def sample(count):
    points = torch.randn(count, 2)
    sign = torch.where((points.norm(dim=1) - 1.1) * points[:, 0] > 0, 1.0, -1.0)
    return points, sign


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)

    def forward(self, points):
        return self.out(self.body(points)).squeeze(-1)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
criterion = nn.BCEWithLogitsLoss()
x, answer = sample(2048)

for step in range(400):
    rows = torch.randint(0, len(x), (64,))
    loss = criterion(net(x[rows]), answer[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
