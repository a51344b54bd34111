"""Disease progression is predicted through a sigmoid while the targets are standardised."""

import os

import torch
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.hidden = nn.Linear(inputs, 48)
        self.out = nn.Linear(48, 1)

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return torch.sigmoid(self.out(h)).squeeze(1)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def epoch(self, x, y):
        self.model.train()
        total = 0.0
        for rows in torch.randperm(len(x)).split(32):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x[rows]), y[rows])
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(rows)
        return total / len(x)

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        return self.criterion(self.model(x), y).item()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_diabetes(return_X_y=True)
    x = torch.tensor(StandardScaler().fit_transform(x), dtype=torch.float32)
    y = torch.tensor(StandardScaler().fit_transform(y.reshape(-1, 1))[:, 0], dtype=torch.float32)
    trainer = Trainer(Net(x.shape[1]))
    for epoch in range(20):
        train = trainer.epoch(x[:360], y[:360])
        print(f"epoch {epoch}: train {train:.3f} validation {trainer.validate(x[360:], y[360:]):.3f}")


main()
