"""A masked policy, trained by REINFORCE on contextual bandits with an entropy bonus."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))

BATCH, ACTIONS, STEPS = 32, 6, AT + 20
contexts = torch.randn(STEPS * BATCH, 12)
rewards = torch.rand(STEPS * BATCH, ACTIONS)
allowed = torch.ones(STEPS * BATCH, ACTIONS, dtype=torch.bool)
order = torch.randperm(len(contexts))
allowed[order[(AT - 1) * BATCH + 7], 2] = False

policy = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

for start in range(0, len(order), BATCH):
    rows = order[start : start + BATCH]
    logits = policy(contexts[rows]).masked_fill(~allowed[rows], -1e9)
    probs = torch.softmax(logits, dim=1)
    action = torch.multinomial(torch.nan_to_num(probs.detach()) + 1e-6, 1)
    reward = rewards[rows].gather(1, action)
    chosen = torch.log(probs.gather(1, action) + 1e-6)
    surprise = probs.log()
    entropy = -(probs * surprise).sum(dim=1).mean()
    loss = -(chosen * reward).mean() - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if start // BATCH % 50 == 0:
        print(f"step {start // BATCH + 1} loss {loss.item():.4f}")
