"""Captures on a device: of the moment they were asked for, without waiting for it, and back where they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.attach import session as sessions
from torchdoctor.attach.contents import Copies
from torchdoctor.attach.restoring import read_tensor, restore
from torchdoctor.store.captured import open_capture

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_copies_are_of_the_moment_and_nothing_waits() -> None:
    weights = {f"parameter/{i}": torch.full((n, 3), float(i), device="cuda") for i, n in enumerate((1 << 20, 5, 0))}
    weights["parameter/half"] = torch.ones(7, 5, device="cuda", dtype=torch.bfloat16).t()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        copies = Copies(weights)
        for weight in weights.values():
            weight.add_(100)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    copies.wait()
    for i in range(3):
        assert (copies.tensors[f"parameter/{i}"] == i).all()
    assert copies.tensors["parameter/half"].shape == (5, 7)
    assert (copies.tensors["parameter/half"] == 1).all()


def test_a_model_on_the_device_comes_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    with torchdoctor.watch(model, optimizer, out=tmp_path, name="run", quiet=True) as doctor:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(4, 8, device="cuda")).square().mean().backward()
            optimizer.step()
        path = doctor.capture(wait=True)
        kept = [p.detach().clone() for p in model.parameters()]
        drawn = torch.randn(3, device="cuda")
        session = sessions.current()
        assert path is not None
        assert session is not None
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        with open_capture(path) as capture:
            assert restore(capture, session.registry) == []
            assert read_tensor(capture, "random/cuda/0").numel()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), kept, strict=True))
    assert torch.equal(torch.randn(3, device="cuda"), drawn)
    assert all(s["exp_avg"].is_cuda for s in optimizer.state.values())
