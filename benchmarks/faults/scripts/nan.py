"""Turns NaN at step 40, so that a capture is written."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loss_fn = nn.CrossEntropyLoss()
for step in range(60):
    x, y = torch.randn(32, 20), torch.randint(0, 3, (32,))
    out = model(x)
    if step == 40:
        out = (out - out.max() - 1).log()
    optimizer.zero_grad()
    loss = loss_fn(out, y)
    loss.backward()
    optimizer.step()
