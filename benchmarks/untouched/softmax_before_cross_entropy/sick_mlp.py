"""Digits with an MLP that returns class probabilities."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(dim=1))

    def forward(self, x):
        return self.model(x)


class Trainer:
    def __init__(self, model, train, val, lr=1e-3):
        self.model = model
        self.train_loader = DataLoader(train, batch_size=64, shuffle=True)
        self.val_loader = DataLoader(val, batch_size=256)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def train_epoch(self):
        self.model.train()
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = total = 0
        for x, y in self.val_loader:
            hits += (self.model(x).argmax(1) == y).sum().item()
            total += len(y)
        return hits / total

    def fit(self, epochs):
        for epoch in range(epochs):
            print(f"epoch {epoch} loss {self.train_epoch():.4f} acc {self.validate():.3f}")


X, y = load_digits(return_X_y=True)
a, b, ya, yb = train_test_split(X / 16.0, y, test_size=0.25, random_state=0)
train_set = TensorDataset(torch.tensor(a).float(), torch.tensor(ya))
val_set = TensorDataset(torch.tensor(b).float(), torch.tensor(yb))
Trainer(DigitNet(), train_set, val_set).fit(12)
