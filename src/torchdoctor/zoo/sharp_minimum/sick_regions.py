"""Which of three soils lies at a place, from scattered drillings: a coordinate network with sine units and a loader."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OMEGA = 35.0


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(OMEGA * x)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def epoch(self, loader):
        self.model.train()
        for places, soils in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(places), soils)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        losses = [self.criterion(self.model(places), soils).item() for places, soils in loader]
        return sum(losses) / len(losses)


def drillings(count):
    places = 2 * torch.rand(count, 2) - 1
    east, north = places.T
    depth = torch.sin(3 * east) * torch.cos(2 * north) + 0.5 * east * north
    return TensorDataset(places, (depth > -0.3).long() + (depth > 0.3).long())


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    known = DataLoader(drillings(300), batch_size=100, shuffle=True)
    held_out = DataLoader(drillings(1000), batch_size=500)
    model = nn.Sequential(nn.Linear(2, 96), Sine(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 3))
    trainer = Trainer(model, lr=1e-3)
    for epoch in range(230):
        trainer.epoch(known)
        if epoch % 10 == 9:
            print(f"epoch {epoch}: loss at other places {trainer.evaluate(held_out):.4f}")


if __name__ == "__main__":
    main()
