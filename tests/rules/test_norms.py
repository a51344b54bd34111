"""How many steps clipping has cut: the truth for single steps, true bounds for merged ones."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.rules.norms import Clipped, read_clipped
from torchdoctor.run import HISTORY_ROWS
from torchdoctor.summary import summary

LONG = 20 * HISTORY_ROWS
AT = np.arange(LONG)
RANDOM = np.random.default_rng(0)


def clipped(norms: np.ndarray, threshold: float = 1.0) -> Clipped:
    run = RunBuilder(len(norms)).scalar(signals.CLIP_NORM, norms).scalar(signals.CLIP_THRESHOLD, threshold).build()
    found = read_clipped(run.scalar(signals.CLIP_NORM), run.scalar(signals.CLIP_THRESHOLD))
    assert found is not None and summary(run)["clip_frequency"] == found.likely
    return found


@pytest.mark.parametrize(
    ("norms", "wide"),
    [
        (np.where(AT % 100 == 0, 100.0, 0.5), False),
        (np.where(AT < LONG // 2, 0.5, 2.0), False),
        (np.full(LONG, 5.0), False),
        (np.full(LONG, 1.0), False),
        (np.where(RANDOM.random(LONG) < 0.1, 100.0, 0.5), True),
        (RANDOM.lognormal(0, 0.5, LONG), True),
        (np.where(AT == 7, np.nan, 0.5), False),
        (np.where(AT == 7, np.inf, 0.5), False),
    ],
    ids=["1%", "half", "always", "at the threshold", "10%", "noise", "NaN", "Inf"],
)
def test_bounds_hold_the_truth(norms: np.ndarray, wide: bool) -> None:
    for values in (norms, norms[:500]):
        truth = float(np.mean(~(values <= 1.0)))
        found = clipped(values)
        row = 40 / LONG if len(values) == LONG else 0.0  # the last row may hold fewer steps than the others
        assert found.least - row <= truth <= found.most + row
        assert found.likely == pytest.approx(truth, abs=0.02)
        assert wide or found.most - found.least < 0.01


def test_a_threshold_without_end_cuts_nothing() -> None:
    assert clipped(np.ones(50), np.inf) == Clipped(0.0, 0.0, 0.0)
    empty = RunBuilder(5).build().scalar(signals.CLIP_NORM)
    assert read_clipped(empty, empty) is None
