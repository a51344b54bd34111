"""Mixed precision training of a ranking model with a gradient scaler."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
device = "cuda" if torch.cuda.is_available() else "cpu"

items = torch.randn(2000, 24)
quality = torch.tanh(items[:, :5].sum(1)) + 0.1 * torch.randn(2000)
items, quality = items.to(device), quality.to(device)

model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)


def listwise(scores, q):
    """Softmax over the list; entries below the median do not count."""
    allowed = q > q.median()
    weights = torch.softmax(q.masked_fill(~allowed, float("-inf")), 0)
    logp = torch.log_softmax(scores.masked_fill(~allowed, float("-inf")), 0)
    return -(weights * logp).sum()


for step in range(200):
    idx = torch.randint(0, 2000, (64,), device=device)
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        scores = model(items[idx]).squeeze(1)
        loss = listwise(scores, quality[idx])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.3g}")
