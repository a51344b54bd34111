"""How long a step took, with validations left out wherever they come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchdoctor import signals
from torchdoctor.probes import clock as clocks
from torchdoctor.probes.clock import Clock


class Record:
    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def scalar(self, name: str, step: int, value: float, key: str = "") -> None:
        if name == signals.TIME_STEP.name:
            self.seconds[step] = value


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("finished_first", [True, False])
def test_a_validation_after_an_update_belongs_to_no_step(monkeypatch: pytest.MonkeyPatch, finished_first: bool) -> None:
    """A step may be finished late: when the next one begins, after a validation has been noticed."""
    time, record = Time(), Record()
    monkeypatch.setattr(clocks, "perf_counter", lambda: time.now)
    context: Any = SimpleNamespace(record=record)
    clock = Clock(context)
    for step in range(5):
        clock.training_pass(0.0)
        time.passes(1.0)
        clock.backward_begins(0.0)
        time.passes(2.0)
        clock.backward_ends()
        clock.optimizer_begins(closure=False)
        time.passes(0.5)
        clock.optimizer_ends()
        if finished_first:
            clock.finish(step, 0.0)
        time.passes(10.0)
        clock.validating()
        if not finished_first:
            clock.finish(step, 0.0)
    assert record.seconds == pytest.approx(dict.fromkeys(range(1, 5), 3.5))
