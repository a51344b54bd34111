"""Trains 64 steps, then executes argv[1]."""
# ruff: noqa: F401

import ctypes
import os
import resource
import signal
import sys
import threading
import time

import torch

torch.manual_seed(0)
model = torch.nn.Linear(20, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x, y = torch.randn(64, 20), torch.randint(0, 3, (64,))
for _ in range(64):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    time.sleep(0.01)
print("trained", flush=True)
exec(sys.argv[1])
