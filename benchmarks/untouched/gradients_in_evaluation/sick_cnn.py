"""Digit CNN with a full pass over the validation set after every epoch."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x):
        return self.fc(self.conv(x))


def main():
    d = load_digits()
    x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
    order = torch.randperm(len(x))
    train = DataLoader(TensorDataset(x[order[:1300]], y[order[:1300]]), 64, shuffle=True)
    val = DataLoader(TensorDataset(x[order[1300:]], y[order[1300:]]), 64)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    ce = nn.CrossEntropyLoss()
    for epoch in range(8):
        net.train()
        for xb, yb in train:
            opt.zero_grad()
            ce(net(xb), yb).backward()
            opt.step()
        net.eval()
        val_loss, hits = 0.0, 0
        for xb, yb in val:
            out = net(xb)
            val_loss += ce(out, yb).item() * len(yb)
            hits += (out.argmax(1) == yb).sum().item()
        print(f"epoch {epoch} val loss {val_loss / 497:.4f} acc {hits / 497:.3f}")


main()
