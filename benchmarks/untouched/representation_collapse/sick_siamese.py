"""Self-supervised embeddings: two noisy views of a digit should agree."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.net(x)


def view(x):
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep + 0.1 * torch.randn_like(x)


x = torch.tensor(load_digits().data).float() / 16
model = Embedder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(20):
    total = 0.0
    for idx in torch.randperm(len(x)).split(64):
        a, b = model(view(x[idx])), model(view(x[idx]))
        loss = F.mse_loss(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        spread = model(x).std(0).mean().item()
    print(f"epoch {epoch} loss {total / 29:.6f} spread of embeddings {spread:.5f}")
