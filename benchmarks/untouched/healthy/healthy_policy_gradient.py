"""REINFORCE with a baseline on a small corridor."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
LENGTH, HORIZON, ENVS = 7, 20, 32

policy = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
eye = torch.eye(LENGTH)
baseline = 0.0
for update in range(120):
    pos = torch.full((ENVS,), LENGTH // 2)
    alive = torch.ones(ENVS)
    log_probs, rewards = [], []
    for _ in range(HORIZON):
        dist = torch.distributions.Categorical(logits=policy(eye[pos]))
        action = dist.sample()
        log_probs.append(dist.log_prob(action) * alive)
        pos = (pos + 2 * action - 1).clamp(0, LENGTH - 1)
        done = (pos == LENGTH - 1).float()
        rewards.append(alive * (done - 0.02))
        alive = alive * (1 - done)
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(log_probs) * (returns - baseline)).sum(0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    mean = returns[0].mean().item()
    baseline = 0.9 * baseline + 0.1 * mean
    if update % 15 == 0:
        print(f"update {update} return {mean:.3f}")
