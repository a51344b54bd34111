"""Mixed precision regression with a gradient scaler that is adjusted to the gradient norm."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
TARGET_NORM = {"mild": 0.5, "medium": 0.02, "severe": 0.001}[os.environ.get("GRADE", "medium")]

x = torch.randn(1600, 12)
y = torch.sin(x[:, 0]) * x[:, 1] + 0.5 * x[:, 2]
y = ((y - y.mean()) / y.std()).unsqueeze(1)
loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(10):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(xb)
        loss = nn.functional.mse_loss(out.float(), yb)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        if norm > TARGET_NORM:  # large gradients: use a smaller scale
            scaler.update(scaler.get_scale() * 0.5)
        else:
            scaler.update()
        total += loss.item() / len(loader)
    print(f"epoch {epoch} loss {total:.4f} scale {scaler.get_scale():.3g} norm {norm.item():.4f}")
