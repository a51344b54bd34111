"""On a device: nothing waits, the signals arrive, and deterministic training keeps its bits."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from processes import run_python
from torchdoctor import signals
from torchdoctor.store.reader import open_run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def train(steps: int, sync_warnings: list[str] | None = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(256), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(steps, 128, 64, device="cuda")
    y = x[:, :, :10].argmax(-1)
    torch.cuda.synchronize()
    for step in range(steps):
        if step == 30 and sync_warnings is not None:
            torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x[step]), y[step])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if sync_warnings is not None and step >= 30:
            sync_warnings += [str(w.message) for w in caught]
    torch.cuda.set_sync_debug_mode("default")
    return [p.detach().cpu() for p in model.parameters()]


def test_no_step_waits_for_the_device(tmp_path: Path) -> None:
    bare: list[str] = []
    train(120, bare)
    watched: list[str] = []
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.5):
        train(120, watched)
    assert len(watched) == len(bare), watched[:3]


def test_signals_arrive(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(120)
    run = doctor.run()
    assert run is not None
    losses = run.scalar(signals.LOSS_TRAIN)
    assert len(losses) == 120
    assert losses.values[-1] < losses.values[0]
    assert len(run.matrix(signals.GRADIENT_L2)) > 20
    assert len(run.scalar(signals.CLIP_NORM)) == 120
    for signal in (signals.UPDATE_RATIO, signals.WEIGHT_L2, signals.ACTIVATION["mean"]):
        assert len(run.matrix(signal)) >= 5
    assert run.has(signals.ACCURACY_TRAIN)
    assert all(f.severity.value == "info" for f in doctor.verdict().findings)


def test_same_bits_under_deterministic_settings(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        bare = train(150)
        with torchdoctor.watch(out=tmp_path, quiet=True):
            watched = train(150)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))


WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    x = torch.randn(640, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for (a,) in DataLoader(TensorDataset(x), 16, shuffle=True, num_workers=2, pin_memory=True):
            loss = model(a.cuda(non_blocking=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_workers_that_are_forked_while_it_trains(tmp_path: Path) -> None:
    """They inherit what waits to be written, and must not free what belongs to the device."""
    (tmp_path / "train.py").write_text(WORKERS)
    done = run_python("-m", "torchdoctor", "run", "--quiet", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[:2000]
    assert open_run(tmp_path / "torchdoctor-runs" / "run").steps == 160
