"""A deep network that reads the gradient norm of every parameter in every step. Needs a CUDA device.

On a CPU nothing has to be waited for, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    layers = [nn.Linear(32, 256), nn.ReLU()]
    for _ in range(20):
        layers += [nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(256, 4)).to(DEVICE)
    weights = torch.randn(32, 4)
    x = torch.randn(4096, 32)
    y = (x @ weights).argmax(1)
    x, y = x.to(DEVICE), y.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    history = []
    for step in range(300):
        rows = torch.randint(0, len(x), (256,), device=DEVICE)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        history.append([p.grad.norm().item() for p in model.parameters()])
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}, norm {history[-1][0]:.3g}")


main()
