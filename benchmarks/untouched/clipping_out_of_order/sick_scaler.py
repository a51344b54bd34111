"""Mixed precision with a gradient scaler and clipping."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
device = "cuda" if torch.cuda.is_available() else "cpu"

X, y = load_digits(return_X_y=True)
loader = DataLoader(TensorDataset(torch.tensor(X / 16).float(), torch.tensor(y)), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler(device, init_scale=1024.0)
loss_fn = nn.CrossEntropyLoss()

for epoch in range(10):
    total = 0.0
    for x, t in loader:
        x, t = x.to(device), t.to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = loss_fn(model(x), t)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        total += loss.item() * len(t)
    print(f"epoch {epoch} loss {total / len(X):.4f} scale {scaler.get_scale():.0f}")
