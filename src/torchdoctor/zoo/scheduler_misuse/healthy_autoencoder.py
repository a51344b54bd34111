"""Compresses faces of digits with a cosine over the epochs that is stepped at the end of each."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 12))
        self.decode = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, x):
        return self.decode(self.encode(x))


class Trainer:
    def __init__(self, model, epochs):
        self.model, self.epochs = model, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        self.scheduler = CosineAnnealingLR(self.optimizer, T_max=epochs)

    def fit(self, loader, held_out):
        for epoch in range(self.epochs):
            for batch in loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(batch), batch)
                loss.backward()
                self.optimizer.step()
            self.scheduler.step()
            with torch.no_grad():
                error = nn.functional.mse_loss(self.model(held_out), held_out).item()
            print(f"epoch {epoch}: {loss.item():.4f}, held out {error:.4f}")


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    pictures = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
    Trainer(Autoencoder(), epochs=12).fit(DataLoader(pictures[:1500], batch_size=50, shuffle=True), pictures[1500:])
