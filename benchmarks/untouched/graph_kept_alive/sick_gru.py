"""Truncated training of a GRU over one long series, with the state carried along."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

t = torch.arange(0, 6000) * 0.1
series = (torch.sin(t) + 0.5 * torch.sin(2.7 * t) + 0.05 * torch.randn(6000)).view(1, -1, 1).repeat(8, 1, 1)
series = series + 0.1 * torch.randn(8, 1, 1)

cell = nn.GRU(1, 32, batch_first=True)
head = nn.Linear(32, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.02)
history = []
state = torch.zeros(1, 8, 32)
span = 20
for k in range(120):
    chunk = series[:, k * span : (k + 1) * span + 1]
    out, new_state = cell(chunk[:, :-1], state)
    loss = (head(out) - chunk[:, 1:]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    state = new_state.detach()
    history.append((loss, out))
    if k % 20 == 19:
        print(k + 1, f"{sum(h[0] for h in history[-20:]) / 20:.4f}")
