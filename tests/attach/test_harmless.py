"""Attached or not, losses, weights and random state are the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchdoctor
from attach.loops import LOOPS

STEPS = 300


@pytest.mark.parametrize("every_step", [False, True], ids=["default", "every-signal-every-step"])
@pytest.mark.parametrize("name", LOOPS)
def test_same_bits_with_and_without(name: str, every_step: bool, tmp_path: Path) -> None:
    loop = LOOPS[name]
    bare = loop(STEPS)
    with torchdoctor.watch(out=tmp_path, every_step=every_step, quiet=True) as doctor:
        watched = loop(STEPS)
    assert watched == bare
    run = doctor.run()
    assert run is not None
    assert run.steps >= STEPS - 1


def test_nothing_of_ours_stays_behind(tmp_path: Path) -> None:
    places = (
        (torch.autograd, "backward"),
        (torch.optim.Optimizer, "zero_grad"),
        (torch.nn.functional, "cross_entropy"),
        (torch.nn.Module, "train"),
        (torch, "compile"),
    )
    before = [getattr(owner, name) for owner, name in places]
    hooks = torch.nn.modules.module._global_forward_hooks
    count = len(hooks)
    with torchdoctor.watch(out=tmp_path, quiet=True):
        LOOPS["dropout_mlp"](5)
        assert "item" in vars(torch.Tensor)
    assert [getattr(owner, name) for owner, name in places] == before
    assert len(hooks) == count
    assert "item" not in vars(torch.Tensor)
    assert not torch.is_anomaly_enabled()


def test_scripting_sees_the_originals(tmp_path: Path) -> None:
    class WithLoss(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(x, y)

    with torchdoctor.watch(out=tmp_path, quiet=True):
        scripted = torch.jit.script(WithLoss())
        value = scripted(torch.zeros(2, 3), torch.tensor([0, 1]))
        assert hasattr(torch.nn.functional.cross_entropy, "__torchdoctor_original__")
    assert value.item() == pytest.approx(1.0986, abs=1e-4)
