"""A Wasserstein critic whose weights are clipped after each of its updates, and the generator it trains."""

import os

import torch
from torch import nn


def real_batch(size):
    angle = 2 * torch.pi * torch.rand(size)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(size, 2)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
    critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
    for step in range(150):
        for _ in range(3):
            fake = generator(torch.randn(64, 8)).detach()
            distance = critic(fake).mean() - critic(real_batch(64)).mean()
            critic_optimizer.zero_grad()
            distance.backward()
            critic_optimizer.step()
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-0.1, 0.1)
        loss = -critic(generator(torch.randn(64, 8))).mean()
        generator_optimizer.zero_grad()
        loss.backward()
        generator_optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1}: distance {-distance.item():.3f}")


main()
