"""A regressor whose hidden features are the lengths of small groups."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(1500, 10)
y = torch.relu(x[:, 0]) - 0.5 * x[:, 1] * (x[:, 2] > 0) + 0.05 * torch.randn(1500)


class GroupNet(nn.Module):
    """Features in groups of four; each group is represented by its length."""

    def __init__(self, groups=12):
        super().__init__()
        self.lift = nn.Linear(10, groups * 4)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(groups, 1)

    def forward(self, x):
        g = self.drop(self.lift(x)).view(len(x), -1, 4)
        length = torch.sqrt((g * g).sum(-1))
        return self.out(length).squeeze(1)


model = GroupNet()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for idx in torch.randperm(1500).split(30):
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} {loss.item():.4f}")
