"""Features standardised over the batch inside the model; the data does not divide evenly."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Standardise(nn.Module):
    def forward(self, x):
        centre = x.mean(dim=0)
        spread = x.std(dim=0)
        return (x - centre) / (spread + 1e-5)


count = (AT - 1) * BATCH + 1
inputs = torch.randn(count, 10)
labels = (inputs[:, 0] > 0).long()
loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), Standardise(), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
while step < AT + 20:
    for x, y in loader:
        step += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step >= AT + 20:
            break
    print(f"after {step} steps: {loss.item():.4f}")
