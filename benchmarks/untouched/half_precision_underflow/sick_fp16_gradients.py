"""Per-pixel classification under float16 autocast."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
SIZE = {"mild": 16, "medium": 64, "severe": 96}[os.environ.get("GRADE", "medium")]


def scene(n):
    low = torch.randn(n, 1, SIZE // 8, SIZE // 8)
    smooth = nn.functional.interpolate(low, size=SIZE, mode="bilinear", align_corners=False)
    return smooth + 0.3 * torch.randn(n, 1, SIZE, SIZE), (smooth > 0).float()


net = nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.Conv2d(4, 1, 5, padding=2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
images, masks = scene(32)
for step in range(60):
    idx = torch.randint(0, 32, (8,))
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(images[idx])
    loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), masks[idx])
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(step + 1, f"{loss.item():.4f}")
