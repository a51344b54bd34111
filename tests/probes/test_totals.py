"""The norm of all gradients: never 0 where one of them is NaN, and without those that nobody can measure."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import torchdoctor
from torchdoctor import signals
from torchdoctor.probes.tensors import total, whole_norms
from torchdoctor.store.reader import open_run

BAD = 15
NAN, INF = math.nan, math.inf


def row(l2: float, nonfinite: float) -> list[float]:
    return [l2, *[0.0] * (len(signals.STATISTICS) - 2), nonfinite]


@pytest.mark.parametrize(
    ("rows", "norm"),
    [
        ([row(3.0, 0.0), row(4.0, 0.0)], 5.0),
        ([row(3.0, 0.0), row(4.0, 2.0)], NAN),
        ([row(NAN, 8.0), row(NAN, 8.0)], NAN),
        ([row(3.0, 0.0), row(NAN, NAN)], 3.0),
        ([row(3.0, 0.0), row(NAN, 0.0)], 3.0),
        ([row(NAN, NAN)], NAN),
    ],
    ids=[
        "all finite",
        "some elements are not",
        "none is",
        "one is not measured",
        "one is empty",
        "nothing is measured",
    ],
)
def test_the_norm_of_all(rows: list[list[float]], norm: float) -> None:
    assert total(whole_norms(np.array(rows))) == pytest.approx(norm, nan_ok=True)


def test_an_overflow_is_told_from_nan() -> None:
    assert total(np.array([1.0, INF, NAN])) == INF and math.isnan(total(np.array([1.0, NAN])))


@pytest.mark.parametrize("every_step", [True, False], ids=["all statistics", "norms between them"])
def test_a_run_whose_gradients_turn_nan(tmp_path: Path, every_step: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True, capture="none", every_step=every_step) as doctor:
        for step in range(40):
            optimizer.zero_grad()
            (model(torch.randn(8, 4)).square().mean() * (NAN if step >= BAD else 1.0)).backward()
            optimizer.step()
    norm = open_run(doctor.directory).scalar(signals.GRADIENT_GLOBAL_L2)
    assert (norm.steps >= BAD).sum() >= 3
    assert np.isfinite(norm.values[norm.steps < BAD]).all()
    assert np.isnan(norm.values[norm.steps >= BAD]).all()
