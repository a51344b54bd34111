"""The lab asks the same rules as any run: what it calls a fault is what they call one."""

from __future__ import annotations

from typing import Any

from lab.conftest import Try, computed
from torchdoctor.lab.judging import ask_rules, read_record
from torchdoctor.lab.stations import STATIONS
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, WEIGHT_L2


def _record(**choices: Any) -> dict[str, Any]:
    chosen = {**STATIONS["weight-shapes"].defaults(), **choices}
    record: dict[str, Any] = computed("weight-shapes", chosen)["record"]
    return record


def test_a_record_reads_as_a_run() -> None:
    record = _record(steps=60)
    run = read_record(record)
    assert run.steps == 60 and len(run.scalar(LOSS_TRAIN)) == 60
    assert run.scalar(LEARNING_RATE).values[0] == 10**-2.5
    assert list(run.matrix(WEIGHT_L2).columns) == list(record["shapes"]) == list(run.parameters)


def test_only_the_rules_that_are_asked_speak() -> None:
    record = _record(init="heavy")
    found = ask_rules(record, ("abnormal-distribution", "weight-norm-growth"))
    assert found is not None and found.name == "abnormal-distribution" and "0.weight" in str(found.where)
    assert ask_rules(record, ("weight-norm-growth",)) is None


def test_the_lab_tells_what_the_instrument_tells(try_station: Try) -> None:
    """Collapsed shapes are no rule's business, but weight_distribution names them."""
    shown = try_station("weight-shapes", steps=0, init="zeros")
    assert shown.severity == "warning" and "all zero" in shown.title and not shown.diagnosis
