"""On a real device: the state from before a failure, and the walk back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from processes import run_python
from torchdoctor.store.captured import open_capture
from torchdoctor.store.captures import list_captures

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 8)
x[7] = 0.0
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
for epoch in range(3):
    for a, b in DataLoader(TensorDataset(x, y), 16, shuffle=True):
        a, b = a.cuda(), b.cuda()
        optimizer.zero_grad()
        h = model(a)
        loss = nn.functional.cross_entropy(h, b) + 1e-2 * torch.log(a.norm(dim=1)).mean() * h.mean()
        loss.backward()
        optimizer.step()
        schedule.step()
"""


def test_a_capture_from_before_the_failure_leads_to_its_birth(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_python("-m", "torchdoctor", "run", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torchdoctor replay" in done.stderr
    (entry,) = list_captures(tmp_path / "torchdoctor-runs" / "run")
    with open_capture(entry.path) as capture:
        steps = [step["step"] for step in capture.document["steps"]]
        assert capture.document["taken_at_step"] >= entry.name.step
    assert steps[-1] == entry.name.step
    done = run_python("-m", "torchdoctor", "replay", "run", "--json", "told.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "told.json").read_text())
    assert (found["birth"]["operator"], found["birth"]["line"]) == ("log", 18)
    assert len(found["birth"]["samples"]) == 1
    assert [step for step, _, _ in found["losses"]] == steps[:-1]
    assert max(abs(a - b) for _, a, b in found["losses"]) < 1e-3
    assert found["diagnosis"]["name"] == "log-of-zero"
