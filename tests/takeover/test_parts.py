from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchdoctor.facts import SchedulerFact
from torchdoctor.run import Run, Seen, Trace
from torchdoctor.takeover.parts import stepped_by


def _run(steps: int, *called_at: int) -> Run:
    fact = SchedulerFact("OneCycleLR@0", "OneCycleLR", "0", calls=len(called_at), called_at=list(called_at))
    return Run({}, frozenset(), lambda *_: Trace.empty(), (Seen(0, fact),), steps)


def _frame(*told: tuple[str, int]) -> Any:
    configs = [SimpleNamespace(interval=interval, frequency=frequency) for interval, frequency in told]
    trainer = SimpleNamespace(lr_scheduler_configs=configs)
    return SimpleNamespace(f_locals={"self": SimpleNamespace(trainer=trainer)})


@pytest.mark.parametrize(
    ("calls", "unit"), [((1, 2, 3, 4), "update"), ((12, 24), "epoch"), ((12,), "epoch"), ((24,), "epoch"), ((), None)]
)
def test_from_its_calls(calls: tuple[int, ...], unit: str | None) -> None:
    assert stepped_by(_run(24, *calls)) == unit


def test_too_few_updates_tell_nothing() -> None:
    assert stepped_by(_run(2, 1)) is None


@pytest.mark.parametrize(
    ("told", "unit"),
    [
        ([("epoch", 1)], "epoch"),
        ([("step", 1)], "update"),
        ([("step", 1)] * 2, "update"),
        ([("step", 1), ("epoch", 1)], None),
        ([("step", 50)], None),
        ([], None),
    ],
)
def test_as_the_trainer_says(told: list[tuple[str, int]], unit: str | None) -> None:
    frames = [SimpleNamespace(f_locals={}), SimpleNamespace(f_locals={"self": object()}), _frame(*told)]
    assert stepped_by(_run(24), frames) == unit


def test_no_trainer() -> None:
    assert stepped_by(_run(24, 1, 2, 3), [SimpleNamespace(f_locals={"self": 3})]) == "update"
