"""Batches of several tensors: all are examined for NaN, and of the rest only what was looked at is stated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor import signals
from torchdoctor.engine import examine
from torchdoctor.facts import InputsFact


@dataclass
class Parts:
    first: Tensor
    rest: dict[str, Any]


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        a, b = flat((*args, *kwargs.values()))
        return self.head(torch.cat([a, b.nan_to_num()], 1))


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Parts):
        return flat([value.first, value.rest])
    return [t for v in (value.values() if isinstance(value, dict) else value) for t in flat(v)]


CALLS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "arguments": (lambda m, a, b: m(a, b), "1"),
    "keywords": (lambda m, a, b: m(x=a, mask=b), "mask"),
    "dict": (lambda m, a, b: m({"a": a, "deep": {"b": b}}), "0['deep']['b']"),
    "dataclass": (lambda m, a, b: m(Parts(a, {"b": [b]})), "0['rest']['b'][0]"),
}


def train(call: Callable[..., Tensor], bad: bool) -> None:
    torch.manual_seed(0)
    model = Joined()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(30):
        a, b = torch.randn(8, 12), torch.randn(8, 4)
        y = a[:, :4].argmax(1)
        if bad:
            b[0, 0] = float("nan")
        loss = F.cross_entropy(call(model, a, b), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("bad", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_nan_in_any_tensor_of_a_call_is_named_by_its_path(tmp_path: Path, name: str, bad: bool) -> None:
    call, path = CALLS[name]
    doctor = torchdoctor.watch(out=tmp_path, quiet=True)
    train(call, bad)
    doctor.close()
    run = doctor.run()
    assert run is not None
    verdict = examine(run)
    findings = {f.name: f for f in verdict.findings}
    assert ("nan-in-inputs" in findings) == bad
    if bad:
        assert any(f"argument {path} " in e.text for e in findings["nan-in-inputs"].evidence)
    assert {f.tensors for f in run.facts(InputsFact) if f.role == "input"} == {2}
    about_inputs = [r.text for r in verdict.ruled_out if r.name in ("constant-inputs", "repeated-batch")]
    assert about_inputs and all("the first of 2 input tensors" in text for text in about_inputs)


def test_a_pass_that_only_asks_for_shapes_is_no_validation(tmp_path: Path) -> None:
    """Keras calls each layer on the meta device while a model is built."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True) as doctor:
        for _ in range(4):
            with torch.no_grad(), torch.device("meta"):
                F.mse_loss(nn.Linear(4, 2)(torch.randn(8, 4)), torch.randn(8, 2))
            loss = F.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None and run.phase is not None
    assert (run.phase.validations, run.phase.passes_validation, run.phase.passes_unknown) == (0, 0, 0)


@pytest.mark.parametrize("kept", [list, lambda pairs: TensorDataset(*map(torch.stack, zip(*pairs, strict=True)))])
def test_a_loader_built_anew_for_each_validation_stays_one(tmp_path: Path, kept: Callable[[Any], Any]) -> None:
    """Trainers build their evaluation loader each time, also over a list, which cannot be held weakly."""
    torch.manual_seed(0)
    held = kept([(torch.randn(4), torch.randn(2)) for _ in range(16)])
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    last = 0.0
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True) as doctor:
        for _ in range(3):
            for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 2)), 8):
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                losses = [F.mse_loss(model(x), y).item() for x, y in DataLoader(held, 8)]
            last = sum(losses) / len(losses)
    run = doctor.run()
    assert run is not None and run.keys(signals.LOSS_VALIDATION) == [""]
    assert run.scalar(signals.LOSS_VALIDATION).values[-1] == pytest.approx(last, rel=1e-5)
