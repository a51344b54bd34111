"""On a device: what 16-bit weights lose is measured, and a float16 loop with a scaler is told as such."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.facts import HalfOperationFact, PrecisionFact
from torchdoctor.signals import SCALE, UPDATE_LOST

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_updates_that_leave_bfloat16_weights_as_they_were(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.5) as doctor:
        model = nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), 1e-7)
        for _ in range(40):
            loss = model(torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    assert run.matrix(UPDATE_LOST).column("weight").values.min() > 0.9


def test_autocast_in_float16_with_a_scaler(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cuda")
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.5) as doctor:
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for _ in range(40):
            with torch.autocast("cuda", dtype=torch.float16):
                scores = model(torch.randn(32, 64, device="cuda"))
                loss = nn.functional.cross_entropy(scores, torch.randint(0, 8, (32,), device="cuda"))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    run = doctor.run()
    assert run is not None
    fact = run.last_fact(PrecisionFact)
    assert fact is not None
    assert fact.scaling
    assert len(run.scalar(SCALE)) == 40
    # there autocast itself makes norms and losses in float32, but cross_entropy asks for its log-softmax in float16
    assert {f.operator for f in run.facts(HalfOperationFact)} <= {"LogSoftmax"}
