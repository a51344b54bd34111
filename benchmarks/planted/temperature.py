"""Soft assignment to prototypes with a temperature that is annealed."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1))
        self.compare = nn.Linear(24, 4)

    def forward(self, x, temperature):
        likeness = self.compare(self.encode(x))
        return likeness / temperature


def temperature_at(step):
    return max(1.0 - step / AT, 0.0)


x = torch.randn(1024, 8)
y = x[:, :4].argmax(dim=1)
loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
model = Prototypes()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step = 0
while step < AT + 20:
    for inputs, labels in loader:
        step += 1
        loss = F.cross_entropy(model(inputs, temperature_at(step)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == AT + 20:
            break
print(f"{step} steps, loss {loss.item():.4f}")
