"""Trains tiny steps and keeps its own log of when each was done."""

import sys
import time
from pathlib import Path

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
data = torch.utils.data.TensorDataset(torch.randn(512, 20), torch.randint(0, 3, (512,)))
loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
loss_fn = torch.nn.CrossEntropyLoss()
log, steps, step = Path(sys.argv[1]).open("w", buffering=1), int(sys.argv[2]), 0
while step < steps:
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        log.write(f"{step},{time.time():.4f}\n")
        if step >= steps:
            break
log.write("end\n")
