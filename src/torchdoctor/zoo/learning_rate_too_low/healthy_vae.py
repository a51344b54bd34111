"""A variational autoencoder of digits with a loss by hand and Adam at 0.002."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

RATE = 2e-3


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def negative_elbo(x, output, mean, log_variance):
    reconstruction = (x - output).square().sum(dim=1)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1)
    return (reconstruction + divergence).mean()


torch.manual_seed(int(os.environ.get("SEED", "0")))
pixels = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
for epoch in range(8):
    for rows in torch.randperm(len(pixels)).split(64):
        x = pixels[rows]
        loss = negative_elbo(x, *model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.3f}")
