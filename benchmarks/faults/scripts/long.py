"""Train many tiny steps and log memory, threads, descriptors and the size of the run folder."""

import json
import sys
import time
from pathlib import Path

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
log, steps, runs = Path(sys.argv[1]).open("w", buffering=1), int(sys.argv[2]), Path(sys.argv[3])
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x, y = torch.randn(4096, 16), torch.randint(0, 2, (4096,))
step, begun = 0, time.time()
while step < steps:
    for i in range(0, 4096, 16):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[i : i + 16]), y[i : i + 16])
        loss.backward()
        optimizer.step()
        step += 1
        if step % (steps // 10) == 0:
            rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
            size = sum(p.stat().st_size for p in runs.rglob("*") if p.is_file()) if runs.is_dir() else 0
            row = {
                "step": step,
                "rss": rss,
                "threads": len(list(Path("/proc/self/task").iterdir())),
                "fds": len(list(Path("/proc/self/fd").iterdir())),
                "run": size,
                "files": len(list(runs.rglob("*"))) if runs.is_dir() else 0,
                "seconds": round(time.time() - begun, 1),
            }
            log.write(json.dumps(row) + "\n")
        if step >= steps:
            break
print(sum(p.detach().double().abs().sum().item() for p in model.parameters()), loss.item())
