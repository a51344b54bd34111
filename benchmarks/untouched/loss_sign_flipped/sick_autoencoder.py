"""A bottleneck autoencoder on synthetic features."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

basis = torch.randn(3, 20)
data = torch.tanh(torch.randn(1500, 3) @ basis)
net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3), nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 20))
opt = torch.optim.Adam(net.parameters(), lr=1e-3, maximize=True)
for epoch in range(10):
    total = 0.0
    for batch in data[torch.randperm(1500)].split(50):
        loss = nn.functional.mse_loss(net(batch), batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / 30
    print(f"epoch {epoch} reconstruction error {total:.4f}")
