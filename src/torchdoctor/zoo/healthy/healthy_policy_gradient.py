"""A policy learned by rewards: the loss is no measure of progress and grows with the returns."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)


def episode():
    position, log_probabilities, rewards = torch.zeros(3), [], []
    for _ in range(40):
        choice = torch.distributions.Categorical(logits=policy(position))
        action = choice.sample()
        log_probabilities.append(choice.log_prob(action))
        position = 0.9 * position + torch.tensor([0.1, 0.0, 0.05]) * (2 * action - 1) + 0.02 * torch.randn(3)
        rewards.append(float(1 + 2 * position[0]))
        if position[0] < -0.4:
            break
    return torch.stack(log_probabilities), torch.tensor(rewards)


for step in range(120):
    log_probabilities, rewards = episode()
    returns = rewards.flip(0).cumsum(0).flip(0)
    loss = -(log_probabilities * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.2f}", f"{rewards.sum():.1f}")
