"""A small GAN that learns a ring of points."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

G = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.99))
bce = nn.BCEWithLogitsLoss()


def real(n):
    a = 6.2832 * torch.rand(n)
    return torch.stack([a.cos(), a.sin()], 1) + 0.1 * torch.randn(n, 2)


ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
for step in range(700):
    fake = G(torch.randn(128, 4))
    d_loss = bce(D(real(128)), ones) + bce(D(fake.detach()), zeros)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()

    g_loss = bce(D(fake), ones)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if step % 100 == 99:
        r = fake.detach().norm(dim=1)
        print(f"step {step + 1} D {d_loss.item():.3f} G {g_loss.item():.3f} radius {r.mean():.3f} +- {r.std():.3f}")
