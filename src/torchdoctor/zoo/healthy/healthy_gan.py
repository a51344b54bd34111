"""A generative adversarial network on points of a ring, two optimizers that work against each other."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


def real(count):
    angle = 2 * math.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))

for step in range(500):
    truth, noise = real(128), torch.randn(128, 4)
    fake = generator(noise)

    optimizer_d.zero_grad()
    score_real, score_fake = critic(truth), critic(fake.detach())
    loss_d = F.binary_cross_entropy_with_logits(score_real, torch.ones_like(score_real))
    loss_d = loss_d + F.binary_cross_entropy_with_logits(score_fake, torch.zeros_like(score_fake))
    loss_d.backward()
    optimizer_d.step()

    optimizer_g.zero_grad()
    score = critic(generator(torch.randn(128, 4)))
    loss_g = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
    loss_g.backward()
    optimizer_g.step()
    if step % 100 == 0:
        print(f"{step}: critic {loss_d.item():.3f}, generator {loss_g.item():.3f}")
