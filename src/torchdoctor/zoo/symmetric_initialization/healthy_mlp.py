"""A two-layer classifier on handwritten digits, initialised by hand: weights start at random."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
data, target = load_digits(return_X_y=True)
dataset = TensorDataset(torch.tensor(data, dtype=torch.float32) / 16, torch.tensor(target))
loader = DataLoader(dataset, batch_size=64, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 10)
        self.reset()

    def reset(self):
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(10):
    hits = 0
    for x, y in loader:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (scores.argmax(1) == y).sum().item()
    print(f"epoch {epoch}: accuracy {hits / len(dataset):.3f}")
