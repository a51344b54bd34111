"""Digits with a sparse rectifier network."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
BIASES = {"mild": (-1.2, 0.0), "medium": (-1.9, 0.0), "severe": (-6.0, -6.0)}[os.environ.get("GRADE", "medium")]

X, y = load_digits(return_X_y=True)
X = torch.tensor((X - X.mean(0)) / (X.std(0) + 1e-6), dtype=torch.float32).clamp(-3, 3)
y = torch.tensor(y)
perm = torch.randperm(len(X))
train, val = perm[:1400], perm[1400:]


class SparseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 100)
        self.fc2 = nn.Linear(100, 60)
        self.fc3 = nn.Linear(60, 10)
        for layer, bias in zip((self.fc1, self.fc2), BIASES, strict=True):
            nn.init.constant_(layer.bias, bias)  # start sparse

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        h = torch.relu(self.fc2(h))
        return self.fc3(h)


net = SparseNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(TensorDataset(X[train], y[train]), batch_size=64, shuffle=True)
for epoch in range(10):
    net.train()
    total = 0.0
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(net(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
    net.eval()
    with torch.no_grad():
        acc = (net(X[val]).argmax(1) == y[val]).float().mean()
    print(f"epoch {epoch} loss {total / len(train):.4f} val acc {acc:.3f}")
