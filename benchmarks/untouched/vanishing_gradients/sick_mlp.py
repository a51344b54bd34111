"""A deep sigmoid network on digits."""

import itertools
import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
DEPTH = {"mild": 4, "medium": 8, "severe": 14}[os.environ.get("GRADE", "medium")]


class DeepNet(nn.Module):
    def __init__(self, depth, width=48):
        super().__init__()
        sizes = [64] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.sigmoid(layer(x))
        return self.out(x)


X, y = load_digits(return_X_y=True)
X = torch.tensor((X - X.mean()) / X.std(), dtype=torch.float32)
y = torch.tensor(y)
net = DeepNet(DEPTH)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(20):
    total = 0.0
    for idx in torch.randperm(len(X)).split(64):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(X[idx]), y[idx])
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1} loss {total / len(X):.4f}")
