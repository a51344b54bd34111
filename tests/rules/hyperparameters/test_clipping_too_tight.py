from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import ClipFact
from torchdoctor.findings import Severity
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD, LOSS_TRAIN, UPDATE_RATIO

NAME = "clipping-too-tight"
RANDOM = np.random.default_rng(0)


def clipped(
    norm: float, threshold: float, optimizer: str = "SGD", ratio: float | None = 1e-5, steps: int = 200
) -> RunBuilder:
    builder = (
        RunBuilder(steps)
        .parameters({"a.weight": (8, 8)})
        .optimizer(optimizer, lr=0.1)
        .scalar(CLIP_NORM, norm * np.exp(RANDOM.normal(0, 0.4, steps)))
        .scalar(CLIP_THRESHOLD, threshold)
        .scalar(LOSS_TRAIN, np.linspace(2.3, 2.2, steps))
        .fact(ClipFact("norm", threshold, 2.0, 4, file="train.py", line=20))
    )
    return builder if ratio is None else builder.matrix(UPDATE_RATIO, {"a.weight": ratio})


def test_every_step_is_cut_down() -> None:
    (found,) = findings(clipped(2.0, 0.01).build(), NAME)
    assert found.severity is Severity.WARNING
    assert found.where[0].line == 20
    suggested = found.evidence[1].value
    assert 2.5 < suggested < 6
    assert f"{suggested:.3g}" in (found.fix.code or "")


def test_without_measured_updates_plain_descent_is_still_warned() -> None:
    assert findings(clipped(2.0, 0.01, ratio=None).build(), NAME)[0].severity is Severity.WARNING


@pytest.mark.parametrize(("optimizer", "ratio"), [("AdamW", 3e-3), ("Adam", None), ("SGD", 5e-3)])
def test_where_weights_move_as_usual_it_is_an_info(optimizer: str, ratio: float | None) -> None:
    found = findings(clipped(800.0, 1.0, optimizer, ratio).build(), NAME)
    assert [f.severity for f in found] == [Severity.INFO]


@pytest.mark.parametrize("threshold", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("end", [2.2, 0.2])
def test_published_thresholds_with_adam_are_at_most_an_info(threshold: float, end: float) -> None:
    run = clipped(40.0 * threshold, threshold, "AdamW", 1e-6).scalar(LOSS_TRAIN, np.linspace(4.3, end, 200))
    assert [f.severity for f in findings(run.build(), NAME)] == [Severity.INFO]


def test_adam_whose_weights_hardly_move_is_warned() -> None:
    assert findings(clipped(1.0, 1e-7, "Adam", 1e-6).build(), NAME)[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("norm", "threshold"), [(0.7, 1.0), (2.5, 1.0), (4.0, 0.5)], ids=["a quarter", "most, mildly", "eightfold"]
)
def test_clipping_as_it_is_meant_is_silent(norm: float, threshold: float) -> None:
    assert findings(clipped(norm, threshold).build(), NAME) == []


def test_large_gradients_at_the_start_only() -> None:
    norms = np.concatenate([np.full(60, 50.0), np.full(140, 0.5)])
    run = RunBuilder(200).optimizer("SGD").scalar(CLIP_NORM, norms).scalar(CLIP_THRESHOLD, 1.0).build()
    assert findings(run, NAME) == []


def test_clipping_that_never_acts_on_a_stuck_run_is_an_info() -> None:
    stuck = RANDOM.normal(2.3, 0.02, 200)
    run = clipped(0.1, 1.0).scalar(CLIP_NORM, 0.1).scalar(LOSS_TRAIN, stuck).build()
    assert [f.severity for f in findings(run, NAME)] == [Severity.INFO]
    falling = clipped(0.1, 1.0).scalar(CLIP_NORM, 0.1).scalar(LOSS_TRAIN, np.geomspace(2.3, 0.1, 200)).build()
    assert findings(falling, NAME) == []


def test_infinite_norms_of_a_scaler_do_not_disturb() -> None:
    norms = np.full(200, 20.0)
    norms[::9] = np.inf
    run = clipped(20.0, 0.01).scalar(CLIP_NORM, norms).build()
    assert findings(run, NAME)[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("end", "severity"), [(1.1, Severity.WARNING), (0.1, Severity.INFO)], ids=["held back", "a rate to match"]
)
def test_weights_that_move_but_get_nowhere_soon(end: float, severity: Severity) -> None:
    builder = clipped(2.0, 0.002, ratio=8e-4)
    loss = np.linspace(2.3, end, 200) + RANDOM.normal(0, 0.02, 200)
    assert [f.severity for f in findings(builder.scalar(LOSS_TRAIN, loss).build(), NAME)] == [severity]
