"""An autoencoder with a narrow middle: inputs are their own targets."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    loader = DataLoader(x[:1500], batch_size=50, shuffle=True)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.MSELoss()
    for epoch in range(12):
        for batch in loader:
            loss = criterion(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            held_out = criterion(model(x[1500:]), x[1500:]).item()
        print(f"epoch {epoch}: {loss.item():.4f} {held_out:.4f}")


main()
