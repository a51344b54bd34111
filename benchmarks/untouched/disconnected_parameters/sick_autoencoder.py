"""A convolutional autoencoder that also returns its codes."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 8), nn.Tanh()
        )

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())

    def forward(self, z):
        return self.net(z).view(-1, 1, 8, 8)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.codes = []

    def forward(self, x):
        z = self.encoder(x).detach()
        self.codes = z
        return self.decoder(z)


images = torch.tensor(load_digits().images).float().unsqueeze(1) / 16
loader = DataLoader(TensorDataset(images), batch_size=64, shuffle=True)
ae = AutoEncoder()
opt = torch.optim.Adam(ae.parameters(), lr=2e-3)
for epoch in range(10):
    total = 0.0
    for (x,) in loader:
        opt.zero_grad()
        loss = nn.functional.mse_loss(ae(x), x)
        loss.backward()
        opt.step()
        total += loss.item() * len(x)
    print(f"epoch {epoch} reconstruction {total / len(images):.4f}")
