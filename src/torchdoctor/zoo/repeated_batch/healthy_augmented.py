"""Table rows with random noise from the worker's own numbers, fetched by two workers for a trainer."""

import os

import numpy as np
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SEED = int(os.environ.get("SEED", "0"))


class Wine(Dataset):
    def __init__(self, noise):
        wine = load_wine()
        rows = (wine.data - wine.data.mean(0)) / wine.data.std(0)
        self.rows, self.labels = rows.astype(np.float32), wine.target
        self.noise = noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        row = self.rows[index]
        if self.noise:
            row = row + self.noise * torch.randn(len(row)).numpy()
        return row, self.labels[index]


class Trainer:
    def __init__(self, train, val):
        self.train_loader = DataLoader(train, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)
        self.val_loader = DataLoader(val, batch_size=64)
        self.model = nn.Sequential(nn.Linear(13, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.005, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for rows, labels in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(rows), labels)
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch}: {loss.item():.3f} {self.validate():.3f}")

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.criterion(self.model(rows), labels).item() for rows, labels in self.val_loader]
        return sum(losses) / len(losses)


if __name__ == "__main__":
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    order = torch.randperm(178).tolist()
    Trainer(Subset(Wine(0.3), order[:130]), Subset(Wine(0.0), order[130:])).fit(6)
