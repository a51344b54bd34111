"""Energy-style features in float16 for a small regression."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
WIDTH = {"mild": 3.0, "medium": 8.0, "severe": 20.0}[os.environ.get("GRADE", "medium")]


class EnergyNet(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.lift = nn.Linear(16, 256)
        self.out = nn.Linear(1, 1)
        self.gain = gain

    def forward(self, x):
        h = self.lift(x) * self.gain
        energy = (h * h * h * h).sum(1, keepdim=True)
        return self.out(torch.log1p(energy)).squeeze(1)


x = torch.randn(1024, 16)
y = torch.log1p(x.square().sum(1))
y = (y - y.mean()) / y.std()
model = EnergyNet(WIDTH)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    for idx in torch.randperm(1024).split(32):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x[idx])
            loss = nn.functional.mse_loss(out.float(), y[idx])
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
