"""Q-learning on a small chain, with a replay buffer and a target network that is set to the online one at times."""

import collections
import os
import random

import torch
from torch import nn

LENGTH, DISCOUNT = 8, 0.9


def move(state, action):
    state = min(max(state + (1 if action else -1), 0), LENGTH - 1)
    return state, float(state == LENGTH - 1)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    random.seed(seed)
    online = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
    target = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
    places = torch.eye(LENGTH)
    buffer = collections.deque(maxlen=2000)
    state = 0
    for step in range(600):
        with torch.no_grad():
            greedy = int(online(places[state]).argmax())
        action = random.randrange(2) if random.random() < 0.3 else greedy
        following, reward = move(state, action)
        buffer.append((state, action, reward, following))
        state = 0 if reward else following
        if len(buffer) < 64 or step % 2:
            continue
        rows = random.sample(list(buffer), 32)
        s, a, r, n = (torch.tensor(column) for column in zip(*rows, strict=True))
        with torch.no_grad():
            goal = r + DISCOUNT * (1 - r) * target(places[n]).max(1).values
        value = online(places[s]).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            target.load_state_dict(online.state_dict())
        if step % 100 == 99 or step % 100 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")


main()
