"""torchdoctor check on what a script does around its loop: its own saving and resuming, and its starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from processes import preloaded_torchdoctor

SCRIPT = """
import argparse
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
{seed}
x = torch.randn(320, 12)
y = x[:, :4].argmax(1)
train = DataLoader(TensorDataset(x, y), 16, shuffle=True)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), 1e-3)
start = 0
if args.resume:
    checkpoint = torch.load(args.resume)
    model.load_state_dict(checkpoint["model"])
    {loading}
    start = checkpoint["epoch"] + 1
os.makedirs("out", exist_ok=True)
for epoch in range(start, 20):
    for a, b in train:
        opt.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        opt.step()
    torch.save(dict(model=model.state_dict(), opt=opt.state_dict(), epoch=epoch), f"out/{{epoch}}.pt")
"""


def check(folder: Path, *names: str, **parts: str) -> tuple[int, dict[str, Any], str]:
    (folder / "train.py").write_text(SCRIPT.format(**parts))
    only = [word for name in names for word in ("--only", name)]
    done = preloaded_torchdoctor("check", "--json", "told.json", *only, "train.py", cwd=folder)
    told = json.loads((folder / "told.json").read_text())
    return done.returncode, {c["name"]: c for c in told["checks"]}, done.stdout + done.stderr


def test_a_whole_resume_and_no_seed_are_no_fault(tmp_path: Path) -> None:
    loading = 'opt.load_state_dict(checkpoint["opt"])'
    status, made, text = check(tmp_path, "checkpoint-round-trip", "two-starts", seed="", loading=loading)
    assert status == 0, text
    assert made["checkpoint-round-trip"]["passed"] and "same bits" in made["checkpoint-round-trip"]["text"]
    assert made["two-starts"]["severity"] == "info" and "sets no seed" in made["two-starts"]["text"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["told.json", "train.py"]


def test_a_resume_that_forgets_the_optimizer(tmp_path: Path) -> None:
    status, made, text = check(tmp_path, "checkpoint-round-trip", seed="torch.manual_seed(0)", loading="pass")
    assert status == 3, text
    assert made["checkpoint-round-trip"]["diagnosis"] == "resume-without-state"
    assert 'opt.load_state_dict(checkpoint["optimizer"])' in text
