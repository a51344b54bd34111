"""Denoising with a gamma curve in the first layer."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 8


class Gamma(nn.Module):
    def __init__(self):
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(0.45))

    def forward(self, x):
        return torch.pow(x, self.exponent)


clean = torch.rand((AT + 20) * BATCH, 1, 10, 10) * 0.8 + 0.1
noisy = clean + 0.01 * torch.rand_like(clean)
order = torch.randperm(len(clean))
noisy[order[(AT - 1) * BATCH + 2], 0, 4, 4] = -0.02
model = nn.Sequential(
    Gamma(), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.1), nn.Conv2d(8, 1, 3, padding=1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(noisy, clean), batch_size=BATCH, sampler=order.tolist())
for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = (model(x) - y).abs().mean()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
