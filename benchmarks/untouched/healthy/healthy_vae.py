"""A variational autoencoder of digits."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
        self.mu = nn.Linear(96, latent)
        self.logvar = nn.Linear(96, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(logits, x, mu, logvar):
    rec = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1)
    return (rec + kl).mean()


x = torch.tensor(load_digits().data / 16).float()
x = x[torch.randperm(len(x))]
loader = DataLoader(TensorDataset(x[:1500]), batch_size=50, shuffle=True)
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
for epoch in range(15):
    vae.train()
    total = 0.0
    for (b,) in loader:
        opt.zero_grad()
        loss = elbo(*(lambda o: (o[0], b, o[1], o[2]))(vae(b)))
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    vae.eval()
    with torch.no_grad():
        out, mu, logvar = vae(x[1500:])
        v = elbo(out, x[1500:], mu, logvar).item()
    print(f"epoch {epoch} train {total:.3f} val {v:.3f}")
