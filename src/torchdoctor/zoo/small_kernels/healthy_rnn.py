"""A recurrent network by torch's own call, over all time steps at once. Needs a CUDA device.

On a CPU nothing waits between operations, so there it is a sound training and the case is to be skipped.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 600 if DEVICE == "cuda" else 100


class Model(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.enter = nn.Linear(8, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.rnn(self.enter(x))[0][:, -1])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Model().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = torch.zeros((), device=DEVICE)
    for step in range(STEPS):
        x = torch.randn(256, 24, 8, device=DEVICE)
        drift = x[:, :, 0].mean(1)
        y = (drift > 0.09).long() + (drift > -0.09).long()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 99:
            print(f"step {step + 1}: {total.item() / 100:.3f}")
            total.zero_()


main()
