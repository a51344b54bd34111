"""Trains on gloo with as many ranks as torchrun starts; the last rank executes argv[1] before step 60."""
# ruff: noqa: F401

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank, last = dist.get_rank(), dist.get_world_size() - 1
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x, y = torch.randn(64, 20), torch.randint(0, 3, (64,))
for step in range(120):
    if rank == last and step == 60:
        exec(sys.argv[1])
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    time.sleep(0.01)
