"""Convolutional classifier for digit scans that are stored in one folder per class."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
GRADE = os.environ.get("GRADE", "medium")

digits = load_digits()
rng = np.random.default_rng(SEED)
perm = rng.permutation(len(digits.target))
train_idx, test_idx = perm[:1400], perm[1400:]

# files in the order in which the folders are listed
runs = {"mild": 6, "medium": 2, "severe": 1}[GRADE]  # scanning sessions
ordered = []
for session in np.array_split(train_idx, runs):
    ordered.extend(session[np.argsort(digits.target[session], kind="stable")])
ordered = np.array(ordered)

to_x = lambda i: torch.tensor(digits.images[i] / 16.0, dtype=torch.float32).unsqueeze(1)  # noqa: E731
to_y = lambda i: torch.tensor(digits.target[i])  # noqa: E731
train = DataLoader(TensorDataset(to_x(ordered), to_y(ordered)), batch_size=32)
test = DataLoader(TensorDataset(to_x(test_idx), to_y(test_idx)), batch_size=200)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(9):
    net.train()
    losses = []
    for x, y in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        acc = sum((net(x).argmax(1) == y).sum().item() for x, y in test) / len(test_idx)
    print(f"epoch {epoch} loss {np.mean(losses):.3f} (max {max(losses):.2f}) test acc {acc:.3f}")
