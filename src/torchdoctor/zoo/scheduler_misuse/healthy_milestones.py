"""Milestones that are meant in epochs, in a trainer that steps the schedule after every epoch."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [10, 20, 25], 0.1)

    def train_batch(self, inputs, targets):
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            mean = sum(self.train_batch(*batch) for batch in loader) / len(loader)
            self.schedule.step()
            print(f"epoch {epoch}: loss {mean:.4f}")


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.randn(2000, 8)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2]
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    Trainer(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))).fit(loader, 30)


main()
