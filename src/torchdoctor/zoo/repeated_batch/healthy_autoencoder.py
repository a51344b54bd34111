"""An autoencoder of two modules on handwritten digits; each step asks the loader for its next batch."""

from __future__ import annotations

import itertools
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
images = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
train, held_out = images[:1500], images[1500:]
loader = DataLoader(TensorDataset(train), batch_size=32)
encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 12))
decoder = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 64))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)

batches = itertools.cycle(loader)
for step in range(800):
    (batch,) = next(batches)
    loss = nn.functional.mse_loss(decoder(encoder(batch)), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        with torch.no_grad():
            error = nn.functional.mse_loss(decoder(encoder(held_out)), held_out)
        print(f"step {step}: loss {loss.item():.4f}, validation {error.item():.4f}")
