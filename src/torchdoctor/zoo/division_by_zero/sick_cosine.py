"""A two-tower recommender with a cosine score by hand: an item without features has length zero."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Linear(20, 16)
        self.item = nn.Linear(20, 16, bias=False)

    def forward(self, users, items):
        u, v = torch.tanh(self.user(users)), F.relu(self.item(items))
        lengths = torch.linalg.vector_norm(u, dim=1) * torch.linalg.vector_norm(v, dim=1)
        return (u * v).sum(1) / lengths


class Trainer:
    def __init__(self):
        torch.manual_seed(int(os.environ.get("SEED", "0")))
        self.model = Towers()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.users = torch.randn(3000, 20)
        self.items = (torch.rand(3000, 20) < 0.25).float()
        self.clicked = ((self.users * self.items).sum(1) > 0).float()

    def fit(self, steps):
        for step in range(steps):
            rows = torch.randint(0, 3000, (32,))
            score = 4 * self.model(self.users[rows], self.items[rows])
            loss = F.binary_cross_entropy_with_logits(score, self.clicked[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 50 == 0:
                print(step, loss.item())


Trainer().fit(300)
