"""A convolutional net on digits in which convolutions and the first linear layer follow one another directly."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.norm1(self.conv1(x))
        x = self.norm2(self.conv2(x))
        x = F.avg_pool2d(self.conv3(x), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def run_epoch(net, loader, optimizer=None):
    net.train(optimizer is not None)
    total = right = 0
    with torch.set_grad_enabled(optimizer is not None):
        for x, y in loader:
            scores = net(x)
            loss = F.cross_entropy(scores, y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            right += (scores.argmax(1) == y).sum().item()
            total += len(y)
    return right / total


def main():
    torch.manual_seed(SEED)
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    split = train_test_split(images, labels, test_size=0.2, random_state=SEED)
    train_loader = DataLoader(TensorDataset(split[0], split[2]), batch_size=64, shuffle=True)
    val_loader = DataLoader(TensorDataset(split[1], split[3]), batch_size=256)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(6):
        train = run_epoch(net, train_loader, optimizer)
        print(f"epoch {epoch}: train accuracy {train:.3f}, validation accuracy {run_epoch(net, val_loader):.3f}")


main()
