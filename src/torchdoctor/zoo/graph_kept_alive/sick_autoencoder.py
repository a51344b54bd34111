"""Compresses sensor readings and keeps every batch's error for a plot at the end."""

import os

import torch
from torch import nn


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model, data
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.history = []

    def fit(self, epochs):
        for epoch in range(epochs):
            for batch in self.data[torch.randperm(len(self.data))].split(50):
                self.history.append(self.step(batch))
            recent = self.history[-len(self.data) // 50 :]
            print(f"epoch {epoch}: error {sum(float(e) for e in recent) / len(recent):.4f}")

    def step(self, batch):
        self.optimizer.zero_grad()
        error = ((self.model(batch) - batch) ** 2).mean()
        error.backward()
        self.optimizer.step()
        return error


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    hidden = torch.randn(1500, 4)
    readings = torch.tanh(hidden @ torch.randn(4, 20)) + 0.05 * torch.randn(1500, 20)
    encoder = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 4))
    decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 20))
    trainer = Trainer(nn.Sequential(encoder, decoder), readings)
    trainer.fit(12)
    print("first and last:", float(trainer.history[0]), float(trainer.history[-1]))


if __name__ == "__main__":
    main()
