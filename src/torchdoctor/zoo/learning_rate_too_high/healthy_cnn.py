"""A convolutional network with momentum at a rate of 0.02, behind a trainer class."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        return self.fc(self.dropout(x.flatten(1)))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.history = []

    def batches(self, x, y, size):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - size + 1, size):
            rows = order[start : start + size]
            yield x[rows], y[rows]

    def train(self, x, y, epochs, size=32):
        self.model.train()
        for epoch in range(epochs):
            for inputs, labels in self.batches(x, y, size):
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(inputs), labels)
                loss.backward()
                self.optimizer.step()
                self.history.append(loss.item())
            print(f"epoch {epoch}: {sum(self.history[-50:]) / 50:.4f}")


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    Trainer(ConvNet(), lr=0.02).train(images, torch.tensor(digits.target), epochs=5)
