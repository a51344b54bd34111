"""A recurrent network that adds numbers, its gradients clipped by norm."""

import os

import torch
from torch import nn


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(2, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = Adder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(200):
    numbers = torch.rand(32, 10, 2)
    loss = nn.functional.mse_loss(model(numbers), numbers[:, :, :1].mean(dim=1) * 2 - 1)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 40 == 0:
        print(step, f"{loss.item():.4f}")
