"""Questions matched with answers under float16 autocast: codes are brought to length one before their dot products."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Tower(nn.Module):
    def __init__(self, features, width=1024):
        super().__init__()
        self.inside = nn.Linear(features, 64)
        self.code = nn.Linear(64, width)

    def forward(self, x):
        return F.normalize(self.code(torch.relu(self.inside(x))), dim=1)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    topics = torch.randn(1000, 16)
    questions, answers = topics + 0.1 * torch.randn(1000, 16), topics + 0.1 * torch.randn(1000, 16)
    tower = Tower(16)
    optimizer = torch.optim.AdamW(tower.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(100):
        rows = torch.randperm(1000)[:32]
        with torch.autocast("cpu", dtype=torch.float16):
            scores = tower(questions[rows]) @ tower(answers[rows]).T * 10
            loss = F.cross_entropy(scores, torch.arange(32))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(step, loss.item())


main()
