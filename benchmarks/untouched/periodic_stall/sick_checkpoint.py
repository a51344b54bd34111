"""Regression with frequent compressed checkpoints."""

import gzip
import io
import os
import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
WIDTH = {"mild": 256, "medium": 640, "severe": 1000}[os.environ.get("GRADE", "medium")]
EVERY = 40

x = torch.randn(2000, 16)
y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2] * x[:, 2:3]
model = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def save(folder, step):
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, buffer)
    with gzip.open(Path(folder) / "last.pt.gz", "wb", compresslevel=4) as f:
        f.write(buffer.getvalue())


with tempfile.TemporaryDirectory() as folder:
    for step in range(320):
        idx = torch.randint(0, 2000, (32,))
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            save(folder, step)
            print(f"step {step + 1} loss {loss.item():.4f}")
