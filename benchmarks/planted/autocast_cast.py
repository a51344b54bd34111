"""House prices under autocast to float16, with the living area in square feet among the features."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 32
steps = AT + 20

features = torch.rand(steps * BATCH, 10)
prices = features @ torch.rand(10, 1) + 0.1 * torch.randn(steps * BATCH, 1)
order = torch.randperm(len(features))
features[order[(AT - 1) * BATCH + 2], 6] = 120000.0

model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(features, prices), batch_size=BATCH, sampler=order.tolist())

for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        predicted = model(x)
    loss = nn.functional.mse_loss(predicted.float(), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
