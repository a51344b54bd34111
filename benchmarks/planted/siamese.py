"""A siamese network with a contrastive loss on Euclidean distances."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH = 16


class Pairs(Dataset):
    def __init__(self, count, repeated):
        generator = torch.Generator().manual_seed(SEED + 1)
        self.left = torch.randn(count, 10, generator=generator)
        self.same = torch.randint(2, (count,), generator=generator).float()
        noise = torch.randn(count, 10, generator=generator)
        self.right = torch.where(self.same[:, None] > 0, self.left + 0.1 * noise, noise)
        self.right[repeated], self.same[repeated] = self.left[repeated], 1.0

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        return self.left[index], self.right[index], self.same[index]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, x):
        return self.layers(x)


def contrastive(left, right, same, margin=1.0):
    squared = (left - right).pow(2).sum(dim=1)
    distance = torch.sqrt(squared)
    return (same * distance + (1 - same) * torch.relu(margin - distance)).mean()


torch.manual_seed(SEED)
steps = AT + 20
order = torch.randperm(steps * BATCH).tolist()
loader = DataLoader(Pairs(steps * BATCH, order[(AT - 1) * BATCH + 9]), BATCH, sampler=order, num_workers=2)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
for step, (left, right, same) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = contrastive(encoder(left), encoder(right), same)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"{step}: {loss.item():.3f}")
