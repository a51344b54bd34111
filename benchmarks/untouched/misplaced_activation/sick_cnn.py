"""Convolutional digit classifier, layer by layer."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 4, 32)
        self.fc2 = nn.Linear(32, 10)
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.pool(self.act(self.conv1(x)))
        x = self.pool(self.act(self.conv2(x)))
        x = self.act(self.fc1(x.flatten(1)))
        return self.act(self.fc2(x))


digits = load_digits()
x = torch.tensor(digits.images).float().unsqueeze(1) / 16
y = torch.tensor(digits.target)
p = torch.randperm(len(x))
train_dl = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=32, shuffle=True)
val_dl = DataLoader(TensorDataset(x[p[1400:]], y[p[1400:]]), batch_size=200)
net = ConvNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(8):
    net.train()
    for xb, yb in train_dl:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        acc = sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in val_dl) / 397
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
