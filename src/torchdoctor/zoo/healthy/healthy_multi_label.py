"""Several labels a sample, each rare, with weights for the positive ones."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.randn(2400, 20)
rules = torch.randn(20, 6)
y = (x @ rules > 4.0).float()
loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 6))
criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - y).sum(0) / y.sum(0).clamp_min(1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(8):
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
