from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import PauseFact

NAME = "periodic-stall"


def times(period: int = 20, stall: float = 0.5, regular: bool = True) -> np.ndarray:
    seconds = np.full(400, 0.01)
    at = np.arange(19, 400, period)
    if not regular:
        at = np.random.default_rng(1).choice(400, len(at), replace=False)
    seconds[at] += stall
    return seconds


def test_saving_too_often() -> None:
    pause = PauseFact("torch.save", 20, 10.0, 400, "train.py", 40)
    (found,) = findings(RunBuilder(400).scalar(signals.TIME_STEP, times()).fact(pause, 399).build(), NAME)
    assert "torch.save" in found.title and found.where[0].line == 40


def test_regular_stalls_of_an_unknown_kind() -> None:
    (found,) = findings(RunBuilder(400).scalar(signals.TIME_STEP, times()).build(), NAME)
    assert "every 20 steps" in found.title


def test_irregular_stalls_and_short_ones_are_the_machine() -> None:
    assert not findings(RunBuilder(400).scalar(signals.TIME_STEP, times(regular=False)).build(), NAME)
    assert not findings(RunBuilder(400).scalar(signals.TIME_STEP, times(stall=0.05)).build(), NAME)


def test_our_own_looks_and_waiting_for_data_do_not_count() -> None:
    for signal in (signals.TIME_OWN, signals.TIME_DATA):
        builder = RunBuilder(400).scalar(signals.TIME_STEP, times()).scalar(signal, times() - 0.01)
        assert not findings(builder.build(), NAME)


def test_a_checkpoint_now_and_then() -> None:
    pause = PauseFact("torch.save", 5, 0.4, 400)
    builder = RunBuilder(400).scalar(signals.TIME_STEP, np.full(400, 0.01)).fact(pause, 399)
    assert not findings(builder.build(), NAME)


def test_a_short_run_that_mostly_saves() -> None:
    builder = RunBuilder(100).scalar(signals.TIME_STEP, np.full(100, 0.012))
    assert findings(builder.fact(PauseFact("torch.save", 10, 0.6, 100), 99).build(), NAME)
    assert not findings(builder.fact(PauseFact("torch.save", 60, 0.6, 100), 99).build(), NAME)
