"""A network whose activation function is written out in elementary operations. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, ROWS = (500, 32768) if DEVICE == "cuda" else (20, 256)


def gelu(x):
    inner = 0.7978845608 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + gelu(self.layer(self.norm(x)))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = nn.Sequential(nn.Linear(32, 512), *(Block(512) for _ in range(4)), nn.Linear(512, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        x = torch.randn(ROWS, 32, device=DEVICE)
        y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(x)
        loss = F.mse_loss(out.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 49:
            print(f"step {step + 1}: {total.item() / 50:.3f}")
            total.zero_()


main()
