"""A graph network whose links lie on the host and are copied in every step. Needs a CUDA device.

On a CPU nothing is copied, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, NODES = (400, 4096) if DEVICE == "cuda" else (50, 256)


class Model(nn.Module):
    def __init__(self, links, width=64):
        super().__init__()
        self.links = links
        self.first, self.second = nn.Linear(16, width), nn.Linear(width, 4)

    def forward(self, x):
        links = self.links.to(x.device)
        return self.second(links @ torch.relu(self.first(links @ x)))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    group = torch.randint(0, 4, (NODES,))
    links = (torch.rand(NODES, NODES) < torch.where(group[:, None] == group, 0.02, 0.005)).float()
    links = links / links.sum(1, keepdim=True).clamp_min(1)
    x = torch.randn(NODES, 16) + torch.randn(4, 16)[group]
    model = Model(links).to(DEVICE)
    x, group = x.to(DEVICE), group.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        loss = nn.functional.cross_entropy(model(x + 0.1 * torch.randn_like(x)), group)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 49:
            print(f"step {step + 1}: {total.item() / 50:.3f}")
            total.zero_()


main()
