"""Progress of diabetes from ten measurements: a large network, stopped when the error no longer falls."""

import os

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import nn

EPOCHS, PATIENCE = 150, 5


class Regressor:
    """Fits a network to a table, in the manner of scikit-learn."""

    def __init__(self, width=256, lr=1e-3, batch_size=32):
        self.net = nn.Sequential(
            nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.batch_size = batch_size

    def partial_fit(self, x, y):
        self.net.train()
        for chosen in torch.randperm(len(x)).split(self.batch_size):
            loss = nn.functional.mse_loss(self.net(x[chosen]), y[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def score(self, x, y):
        self.net.eval()
        return nn.functional.mse_loss(self.net(x), y).item()


def load():
    x, y = load_diabetes(return_X_y=True)
    x, y = (x / x.std(0)).astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32)[:, None]
    return [torch.from_numpy(part) for part in train_test_split(x, y, test_size=0.4, random_state=0)]


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, x_test, y, y_test = load()
    regressor = Regressor(lr=1e-4)
    best, since = float("inf"), 0
    for epoch in range(EPOCHS):
        regressor.partial_fit(x, y)
        error = regressor.score(x_test, y_test)
        print(f"epoch {epoch}: error on the other patients {error:.3f}")
        best, since = min(best, error), 0 if error < best else since + 1
        if since >= PATIENCE:
            break


if __name__ == "__main__":
    main()
