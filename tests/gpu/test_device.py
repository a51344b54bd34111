"""The device's own time of a step: measured without waiting, and without a trace in the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from torchdoctor.facts import DeviceFact, TransferFact
from torchdoctor.run import Run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def train(
    steps: int, width: int = 256, rows: int = 128, strict: bool = False, from_host: bool = False
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    x = torch.randn(rows, 64)
    y = x[:, :10].argmax(-1).cuda()
    x = x if from_host else x.cuda()
    torch.cuda.synchronize()
    try:
        for step in range(steps):
            if strict and step == 22:
                torch.cuda.set_sync_debug_mode("error")
            loss = F.cross_entropy(model(x.to("cuda")), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [p.detach().cpu() for p in model.parameters()]


def recorded(doctor: torchdoctor.Doctor) -> Run:
    run = doctor.run()
    assert run is not None
    return run


def test_no_measured_step_waits_and_the_bits_stay(tmp_path: Path) -> None:
    bare = train(300, strict=True)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        watched = train(300, strict=True)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    fact = recorded(doctor).last_fact(DeviceFact)
    assert fact is not None and fact.looks >= 2 and fact.piled
    assert 0 < fact.device_seconds < fact.host_seconds
    assert fact.operations and fact.flops and fact.copy_rate and fact.matmul_rate


def test_the_time_is_the_devices_own(tmp_path: Path) -> None:
    """A step in which the device is the slower one takes as long as the device does."""
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(150, width=4096, rows=16384)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    train(30, width=4096, rows=16384)
    ended.record()
    torch.cuda.synchronize()
    fact = recorded(doctor).last_fact(DeviceFact)
    assert fact is not None and fact.device_seconds > fact.host_seconds
    assert fact.device_seconds < begun.elapsed_time(ended) / 1e3 / 25


def test_copies_are_seen(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(100, from_host=True)
    (fact,) = [f for f in recorded(doctor).facts(TransferFact) if f.count / f.steps > 0.5]
    assert fact.to_device and not fact.pinned and not fact.non_blocking and fact.repeated > 0.5
    assert fact.bytes == 128 * 64 * 4 and fact.line is not None


def test_nothing_is_measured_into_a_captured_graph(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(40)
        doubled = torch.ones(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled.mul_(2)
        graph.replay()
        train(40)
    assert doubled.sum().item() == 2000
    assert recorded(doctor).last_fact(DeviceFact) is not None
