"""The schedule is as long as the run, in the unit in which it is stepped."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.cost.run_plan import updates_an_epoch, updates_of
from torchdoctor.checks.repeats.schedule_reading import FOR_UPDATES, MISUSE, Reading, Trouble, judge, leaves, read
from torchdoctor.findings import Fix, Severity
from torchdoctor.rules.curves import figure

CHECK = Check(
    name="schedule-horizon",
    asks="the learning rate schedule is as long as the run",
    part=PROCEDURE,
    needs_loss=False,
    order=40,
    diagnoses=("scheduler-misuse", "learning-rate-decayed-too-early"),
)
UNITS = {"update": "epoch", "epoch": "update"}
ASLEEP, AWAKE = 0.01, 0.5
"""Share of the peak by which a schedule changes the rate that does nothing, and one that does its work."""
STEPPING = {
    "update": "for x, y in loader:\n    ...\n    optimizer.step()\n    scheduler.step()",
    "epoch": "for epoch in range(epochs):\n    train_one_epoch()\n    scheduler.step()",
}


def perform(bench: Bench) -> Outcome:
    schedulers = _outermost(bench.schedulers)
    if not schedulers:
        return skipped(bench.without("learning rate schedule"))
    each, updates = updates_an_epoch(bench), updates_of(bench)
    epochs = bench.epochs or (math.ceil(updates / each) if updates and each else None)
    calls = {unit: count for unit, count in (("epoch", epochs), ("update", updates)) if count}
    if not calls:
        return skipped("how long the run will be is not known (epochs=)")
    said = []
    for scheduler in schedulers:
        outcome = (
            _plateau(bench, scheduler, each)
            if isinstance(scheduler, ReduceLROnPlateau)
            else _judge(bench, scheduler, calls)
        )
        if outcome.passed is not True:
            return outcome
        said.append(outcome)
    return said[0] if len(said) == 1 else passed("; ".join(o.text for o in said))


def _outermost(schedulers: list[Any]) -> list[Any]:
    inner = {id(child) for s in schedulers for child in getattr(s, "_schedulers", ())}
    return [s for s in schedulers if id(s) not in inner]


def _judge(bench: Bench, scheduler: Any, calls: dict[str, int]) -> Outcome:
    unit = bench.step_of_schedule
    if unit is None and "update" in calls and any(type(leaf).__name__ in FOR_UPDATES for leaf in leaves(scheduler)):
        unit = "update"
    if unit is not None and unit not in calls:
        return skipped("it is stepped by the update, and how many an epoch has is not known")
    readings = {name: read(scheduler, count) for name, count in calls.items()}
    troubles = {name: judge(reading, name) for name, reading in readings.items() if reading is not None}
    if unit is None:
        return _of_either(readings, troubles, calls)
    found, reading, other = troubles.get(unit), readings[unit], UNITS[unit]
    if reading is None:
        return skipped(f"{type(scheduler).__name__} cannot be run over {calls[unit]} calls in a moment")
    if found is None and unit == bench.step_of_schedule and other in troubles:
        found = _asleep(reading, readings[other], troubles[other], unit)
    if found is None:
        return _fits(reading, unit)
    if unit == bench.step_of_schedule and other in troubles and troubles[other] is None and _acts(readings[other]):
        found = Trouble(
            f"{found.text}; stepped after every {other} ({calls[other]} calls) it would fit the run",
            MISUSE,
            Severity.ERROR,
            Fix(f"Step it after every {other}, or give its settings in {unit}s.", STEPPING[other]),
        )
    return _failed(found, calls)


def _of_either(
    readings: dict[str, Reading | None], troubles: dict[str, Trouble | None], calls: dict[str, int]
) -> Outcome:
    """How often it is stepped is not known: it has to fit in one of the two ways."""
    fitting = [name for name, trouble in troubles.items() if trouble is None]
    fitting.sort(key=lambda name: not _acts(readings[name]))
    reading = readings[fitting[0]] if fitting else None
    if reading is not None:
        return _fits(reading, fitting[0])
    told = [trouble for trouble in troubles.values() if trouble is not None]
    if len(told) < len(UNITS):
        return skipped("it does not fit the number of epochs, and it may be stepped by the update")
    least = max(told, key=lambda trouble: trouble.severity.rank)
    return _failed(replace(least, severity=Severity.WARNING), calls)


def _asleep(reading: Reading, other: Reading | None, trouble: Trouble | None, unit: str) -> Trouble | None:
    """It hardly changes the rate, and would as it should if it were stepped in the other unit."""
    if other is None or trouble is not None or _range(reading) >= ASLEEP or _range(other) < AWAKE:
        return None
    return Trouble(
        f"{reading.name} changes the rate by {_range(reading):.2%} over the {reading.calls} {unit}s after which it is "
        "stepped",
        MISUSE,
        Severity.WARNING,
        Fix("Make the schedule as long as the training.", f"total_steps = {reading.calls}"),
    )


def _range(reading: Reading) -> float:
    """As a share of the peak."""
    return float((reading.peak - reading.rates.min()) / reading.peak) if reading.peak > 0 else 0.0


def _acts(reading: Reading | None) -> bool:
    """Whether it changes the rate at all."""
    return reading is not None and bool(reading.rates.max() > reading.rates.min())


def _fits(reading: Reading, unit: str) -> Outcome:
    first, last = float(reading.rates[0]), float(reading.rates[-1])
    count = f"{reading.calls} {unit}s"
    if not _acts(reading):
        text = f"{reading.name} leaves the learning rate at {figure(last)} over all {count}, so it has no effect"
        fix = Fix("Make the schedule as long as the training, or leave it out.")
        return failed(text, None, fix, severity=Severity.INFO, calls=reading.calls, peak=reading.peak, last=last)
    return passed(
        f"{reading.name} over {count}: from {figure(first)} by way of {figure(reading.peak)} to {figure(last)}",
        calls=reading.calls,
        peak=reading.peak,
        last=last,
    )


def _failed(trouble: Trouble, calls: dict[str, int]) -> Outcome:
    run = " = ".join(f"{count} {unit}s" for unit, count in calls.items())
    return failed(
        trouble.text,
        trouble.diagnosis,
        trouble.fix,
        severity=trouble.severity,
        evidence=(f"the run is {run} long",),
        **calls,
    )


def _plateau(bench: Bench, scheduler: ReduceLROnPlateau, each: int | None) -> Outcome:
    patience, name = scheduler.patience, type(scheduler).__name__
    if bench.step_of_schedule == "update" and each is not None and patience < each:
        return failed(
            f"{name} is stepped after every update and lowers the rate after {patience} of them without a better loss, "
            f"within an epoch of {each}",
            MISUSE,
            Fix("Step it with the validation loss, once an epoch.", "scheduler.step(val_loss)"),
            severity=Severity.WARNING,
        )
    if bench.step_of_schedule != "update" and bench.epochs is not None and patience >= bench.epochs:
        return failed(
            f"{name} waits for {patience} epochs without progress, and the run has {bench.epochs}: it never acts",
            MISUSE,
            Fix(
                "Wait for a tenth of the run at most.",
                f"ReduceLROnPlateau(optimizer, patience={max(1, bench.epochs // 10)})",
            ),
            severity=Severity.INFO,
        )
    return passed(f"{name} follows the loss, with a patience of {patience}", patience=patience)
