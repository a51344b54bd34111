from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LoaderFact
from torchdoctor.findings import Severity
from torchdoctor.signals import BATCH_SIZE, TIME_DATA, TIME_STEP

NAME = "input-bound"


def timed(data: float | np.ndarray, step: float, batch: float = 64, workers: int = 0, steps: int = 200) -> RunBuilder:
    waits = np.broadcast_to(np.asarray(data, float), (steps,)) * np.random.default_rng(0).uniform(0.9, 1.1, steps)
    return (
        RunBuilder(steps)
        .scalar(TIME_DATA, waits)
        .scalar(TIME_STEP, np.maximum(step, waits))
        .scalar(BATCH_SIZE, batch, "train")
        .fact(LoaderFact("loader", "train", 50, 3200, int(batch), workers, True, "Images"))
    )


def test_a_slow_dataset_without_workers() -> None:
    (found,) = findings(timed(0.080, 0.100).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "81%" in found.title
    assert "num_workers=4" in (found.fix.code or "")
    assert found.evidence[0].value == pytest.approx(0.8, abs=0.02)


def test_too_few_workers() -> None:
    (found,) = findings(timed(0.080, 0.100, workers=2).build(), NAME)
    assert "num_workers=4" in (found.fix.code or "")


def test_workers_that_deliver_in_bursts() -> None:
    bursts = np.where(np.arange(200) % 4 == 0, 0.2, 0.0)
    (found,) = findings(timed(bursts, 0.05).build(), NAME)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("data", "step", "batch"),
    [(0.0005, 0.0012, 64), (0.008, 0.012, 1024), (0.0015, 0.004, 8)],
    ids=["tiny steps", "collating many", "a millisecond"],
)
def test_collating_from_memory_is_at_most_an_info(data: float, step: float, batch: float) -> None:
    assert all(f.severity is Severity.INFO for f in findings(timed(data, step, batch).build(), NAME))


def test_a_loader_that_keeps_up_is_silent() -> None:
    assert findings(timed(0.002, 0.050).build(), NAME) == []


def test_starting_the_workers_does_not_count() -> None:
    waits = np.full(200, 0.001)
    waits[:2] = 3.0
    assert findings(timed(waits, 0.02, workers=4).build(), NAME) == []


def test_a_few_steps_are_not_judged() -> None:
    assert findings(timed(0.08, 0.1, steps=15).build(), NAME) == []
