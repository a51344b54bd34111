"""Digits with detailed statistics after every step."""

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
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
stats = []
for _ in range(6):
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        out = model(xb)
        loss = nn.functional.cross_entropy(out, yb)
        loss.backward()
        optimizer.step()
        right = 0
        for i in range(len(yb)):
            if out[i].argmax().item() == yb[i].item():
                right += 1
        row = {"loss": loss.item(), "acc": right / len(yb)}
        for name, p in model.named_parameters():
            row[name + "/grad"] = p.grad.norm().item()
            row[name + "/mean"] = p.detach().mean().cpu().item()
            row[name + "/max"] = p.detach().abs().max().item()
        stats.append(row)
        print(f"step {len(stats)} loss {row['loss']:.4f} acc {row['acc']:.3f}")
