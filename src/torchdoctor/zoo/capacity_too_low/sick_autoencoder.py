"""An autoencoder whose code is far narrower than the data: 2 numbers for 20 directions."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

CODE = 2


class Autoencoder(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 96), nn.ReLU(), nn.Linear(96, CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 96), nn.ReLU(), nn.Linear(96, features))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    data = torch.randn(4000, 20) @ torch.randn(20, 64) / 20**0.5
    train_set, validation_set = random_split(TensorDataset(data), [3200, 800])
    train_loader = DataLoader(train_set, batch_size=128, shuffle=True)
    validation_loader = DataLoader(validation_set, batch_size=200)
    model = Autoencoder(64)
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(25):
        model.train()
        for (x,) in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), x)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = sum(criterion(model(x), x).item() for (x,) in validation_loader) / len(validation_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation {error:.3f}")


main()
