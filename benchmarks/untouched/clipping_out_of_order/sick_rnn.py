"""Sequence regression with a recurrent network and gradient clipping."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 32, num_layers=2, batch_first=True)
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.fc(h[:, -1]).squeeze(-1)


def batch(n=32, length=20):
    x = torch.randn(n, length, 3)
    return x, 2 * torch.tanh(x[:, -5:, 0].sum(1)) + x[:, -1, 1]


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(500):
    x, y = batch()
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
    if step % 50 == 49:
        print(f"{step + 1} {loss.item():.4f}")
