"""Digits with bfloat16 mixed precision."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
device = "cuda" if torch.cuda.is_available() else "cpu"

X, y = load_digits(return_X_y=True)
loader = DataLoader(TensorDataset(torch.tensor(X / 16).float(), torch.tensor(y)), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(10):
    total = 0.0
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        logits = model(xb)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = criterion(logits, yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(yb)
    print(f"epoch {epoch} loss {total / len(X):.4f}")
