"""NaN and Inf that enter between the loader and the model are named as such, live and afterwards."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.engine import examine
from torchdoctor.errors import TrainingHalted
from torchdoctor.findings import Finding, Severity
from torchdoctor.store.reader import open_run

STEPS, BAD = 60, range(37, 40)


def scale_by_nan(x: Tensor, step: int) -> Tensor:
    return x * float("nan") if step in BAD else x


def scale_by_a_table(x: Tensor, step: int) -> Tensor:
    table = torch.ones(x.shape[1])
    table[2] = float("nan") if step in BAD else 1.0
    return x * table


def write_into_the_batch(x: Tensor, step: int) -> Tensor:
    x = x.clone()
    if step in BAD:
        x[::2] = float("inf")
    return x


def divide_by_nothing(x: Tensor, step: int) -> Tensor:
    return (x - x.mean(0)) / (0.0 if step in BAD else 1.0)


def always_nan(x: Tensor, step: int) -> Tensor:
    return torch.full_like(x, float("nan"))


def batches() -> Iterator[tuple[int, Any]]:
    features = torch.randn(16 * STEPS, 12)
    loader = DataLoader(TensorDataset(features, features[:, :4].argmax(1)), batch_size=16, shuffle=True)
    yield from enumerate(loader)


def train(change: Callable[[Tensor, int], Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, y) in batches():
        loss = F.cross_entropy(model(change(x, step)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("mode", [None, "skip", "rollback", "halt"])
@pytest.mark.parametrize(
    "change", [scale_by_nan, scale_by_a_table, write_into_the_batch, divide_by_nothing, always_nan]
)
def test_the_first_finding_names_the_inputs(
    tmp_path: Path, change: Callable[[Tensor, int], Tensor], mode: str | None, recwarn: pytest.WarningsRecorder
) -> None:
    if mode is not None and change not in (scale_by_nan, always_nan):
        pytest.skip("what is done about a bad step does not depend on how it became bad")
    live: list[Finding] = []
    warnings.simplefilter("always")
    doctor = torchdoctor.watch(out=tmp_path, quiet=True, on_nonfinite=mode, on_finding=live.append)
    with contextlib.suppress(TrainingHalted):
        train(change)
    doctor.close()
    run = doctor.run()
    assert run is not None
    for verdict in (examine(run), examine(open_run(run.info["path"]))):
        faults = [f for f in verdict.findings if f.severity is not Severity.INFO and f.consequence_of is None]
        names = ("division-by-zero", "nan-in-inputs") if change is divide_by_nothing else ("nan-in-inputs",)
        assert next(f.name for f in faults) in names
        assert "nan-in-inputs" in {f.name for f in verdict.findings}
        assert not {f.name for f in faults} & {"constant-inputs", "repeated-batch"}
    assert not [w for w in recwarn.list if issubclass(w.category, RuntimeWarning)]
