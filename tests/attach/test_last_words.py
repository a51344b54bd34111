"""A script that looks at its loss itself and gives up is told what it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import preloaded_torchdoctor

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.rand(320, 6) + 0.5
x[150] = 0.0
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train():
    for (xb,) in DataLoader(TensorDataset(x), batch_size=16):
        loss = LOSS
        CHECK
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train()
"""
LOG = "model(xb).square().mean() - (xb * model.weight.square()).sum(1).log().mean()"
SOFTMAX = "(torch.softmax(model(xb).masked_fill(xb == 0, -torch.inf), 1) * xb).sum(1).mean()"


@pytest.mark.parametrize(
    ("loss", "check", "name", "found"),
    [
        (LOG, "assert torch.isfinite(loss), 'blew up'", "log-of-zero", "log-of-zero"),
        (LOG, "sys.exit(3) if loss.isinf() else None", "log-of-zero", "log-of-zero"),
        (SOFTMAX, "assert loss == loss", "nonfinite-parameters", "division-by-zero"),
    ],
    ids=["assert", "exit", "not-in-the-graph"],
)
def test_it_is_named_and_can_be_replayed(loss: str, check: str, name: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("LOSS", loss).replace("CHECK", check))
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "--json", "said.json", "train.py", cwd=tmp_path)
    assert done.returncode == (3 if "exit" in check else 1)
    first = json.loads((tmp_path / "said.json").read_text())["findings"][0]
    assert (first["name"], first["first_step"], first["severity"]) == (name, 9, "error")
    done = preloaded_torchdoctor("replay", "run", "--json", "told.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["diagnosis"]["name"], told["birth"]["samples"]) == (found, [6])


def test_another_error_is_no_loss(tmp_path: Path) -> None:
    body = SCRIPT.replace("LOSS", "model(xb).square().mean()").replace("CHECK", "assert len(xb) < 16")
    (tmp_path / "train.py").write_text(body)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "--json", "said.json", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "said.json").exists() or not json.loads((tmp_path / "said.json").read_text())["findings"]
