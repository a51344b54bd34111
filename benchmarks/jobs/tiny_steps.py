"""30,000 steps of about 0.4 ms."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 205), nn.Tanh(), nn.Linear(205, 205), nn.Tanh(), nn.Linear(205, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs = torch.randn(4_096, 16)
targets = inputs[:, :1] * inputs[:, 1:2]
for _step in range(30_000):
    rows = torch.randint(0, 4_096, (32,))
    loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
