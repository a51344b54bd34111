"""Word vectors with sparse gradients: each step touches the few rows that occur in its batch."""

import os

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 2000


class SkipGram(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.center = nn.Embedding(VOCABULARY, size, sparse=True)
        self.context = nn.Embedding(VOCABULARY, size, sparse=True)
        nn.init.uniform_(self.center.weight, -0.5, 0.5)
        nn.init.normal_(self.context.weight, std=0.1)

    def forward(self, center, context):
        return (self.center(center).unsqueeze(1) * self.context(context)).sum(-1)


def pairs(count):
    center = torch.randint(0, VOCABULARY, (count,))
    near = (center.unsqueeze(1) // 20 * 20 + torch.randint(0, 20, (count, 2))) % VOCABULARY
    far = torch.randint(0, VOCABULARY, (count, 4))
    target = torch.cat([torch.ones(count, 2), torch.zeros(count, 4)], dim=1)
    return center, torch.cat([near, far], dim=1), target


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = SkipGram()
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
    for step in range(600):
        center, context, target = pairs(256)
        loss = F.binary_cross_entropy_with_logits(model(center, context), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, f"{loss.item():.4f}")
