"""Staged fine-tuning: the head first, then the backbone, which is kept in half precision."""

import os

import torch
import torch.nn.functional as F
from torch import nn

AT = int(os.environ.get("AT", "300"))
UNFREEZE = AT - 1
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(16, 32).half()
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x.half())).float())


inputs = torch.randn((AT + 20) * BATCH, 16)
labels = inputs[:, :3].argmax(dim=1)
model = Net()
model.backbone.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
for step in range(AT + 20):
    if step == UNFREEZE:
        model.backbone.requires_grad_(True)
        optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 1e-3})
    part = slice(step * BATCH, (step + 1) * BATCH)
    loss = F.cross_entropy(model(inputs[part]), labels[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
