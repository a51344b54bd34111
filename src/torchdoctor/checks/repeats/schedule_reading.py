"""What a schedule does over a number of calls, found by running a copy of it, and whether that fits a run so long."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.learning_rate.preview import preview
from torchdoctor.probes.schedules import settings_of
from torchdoctor.rules.curves import figure
from torchdoctor.rules.procedure import scheduler_misuse as rule

MISUSE, EARLY = rule.RULE.name, "learning-rate-decayed-too-early"
PREVIEWED, SAMPLED = 10_000, 2_000
"""Calls that are all made, in about a fifth of a second, and points at which the rates of more of them are taken."""
HALF = 0.5
"""Of its peak at the end of the run: a schedule that was to go down has done less than half of it."""
UNFINISHED = 1.5
"""Length of the schedule over the calls that it gets."""
NEARLY = 0.9
"""Of its full height, below which a rate that still climbs at the end of the run is in its warm-up."""
FOR_UPDATES = ("OneCycleLR", "CyclicLR")
"""Which torch's documentation says are stepped after every batch."""


@dataclass(frozen=True)
class Trouble:
    text: str
    diagnosis: str
    severity: Severity
    fix: Fix


@dataclass(frozen=True)
class Reading:
    """One scheduler over the calls of a run."""

    scheduler: Any
    calls: int
    steps: np.ndarray
    """at which the rate was taken"""
    rates: np.ndarray
    error: str | None

    @property
    def name(self) -> str:
        return type(self.scheduler).__name__

    @property
    def peak(self) -> float:
        return float(self.rates.max())

    @property
    def height(self) -> float:
        """Of the highest group, where the schedule lets it come to it."""
        groups = self.scheduler.optimizer.param_groups
        return max(float(group.get("max_lr", group.get("initial_lr", group["lr"]))) for group in groups)

    @property
    def length(self) -> float | None:
        """In calls, where its settings say so."""
        settings = settings_of(self.scheduler)
        return next((float(settings[n]) for n in ("total_steps", "T_max") if n in settings), None)


def read(scheduler: Any, calls: int) -> Reading | None:
    """None where it would take too long."""
    if calls <= PREVIEWED:
        made = preview(scheduler, calls + 1)
        group = int(np.argmax([max(rates) for rates in made.rates]))
        rates = np.asarray(made.rates[group][:calls])
        return Reading(scheduler, calls, np.arange(len(rates)), rates, made.error)
    steps = np.unique(np.linspace(0, calls - 1, SAMPLED).astype(int))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rates = np.array([_rate_at(scheduler, int(step)) for step in steps])
    except _UnknownError:
        return None
    over = isinstance(scheduler, OneCycleLR) and calls > scheduler.total_steps
    error = f"ValueError: the total number of steps is {scheduler.total_steps}" if over else None
    return Reading(scheduler, calls, steps, rates, error)


class _UnknownError(Exception):
    """The rate at a later step is only known by taking all before it."""


def _rate_at(scheduler: Any, step: int) -> float:
    """Of the highest group, by the formula that most of torch's schedulers have."""
    there = copy.copy(scheduler)
    there.last_epoch, there._get_lr_called_within_step = step, True
    if isinstance(scheduler, LambdaLR):
        rates = [base * f(step) for base, f in zip(there.base_lrs, there.lr_lambdas, strict=True)]
    elif isinstance(scheduler, OneCycleLR):
        there.last_epoch = min(step, scheduler.total_steps - 1)
        rates = there.get_lr()
    elif hasattr(scheduler, "_get_closed_form_lr"):
        rates = there._get_closed_form_lr()
    else:
        raise _UnknownError
    return max(map(float, rates))


def leaves(scheduler: Any) -> list[Any]:
    """The schedulers inside it, or itself."""
    inner = getattr(scheduler, "_schedulers", None)
    return [leaf for child in inner for leaf in leaves(child)] if inner else [scheduler]


def judge(reading: Reading, unit: str) -> Trouble | None:
    """`unit`: what it is called after, "update" or "epoch"."""
    rates, calls = reading.rates, reading.calls
    every = f"after every {unit}"
    if reading.error is not None:
        return Trouble(
            f"{reading.name} is over before the run is, and fails ({calls} calls, {every}): {reading.error[:120]}",
            MISUSE,
            Severity.ERROR,
            Fix("Make the schedule as long as the training.", f"total_steps={calls}"),
        )
    if float(rates.min()) < 0:
        return Trouble(
            f"{reading.name} runs past its end: the learning rate is negative, down to {figure(float(rates.min()))}",
            MISUSE,
            Severity.ERROR,
            Fix("Let the schedule end at zero or above.", "lambda step: max(0.0, 1 - step / total_steps)"),
        )
    found = _climbing_again(reading, every) or _run_down(reading, unit)
    return found or _warming(reading, every) or _unfinished(reading, every)


def _climbing_again(reading: Reading, every: str) -> Trouble | None:
    """A single cosine mirrors itself after its end. Several whole periods that end low are taken for a cycle."""
    length = reading.length
    if reading.name != "CosineAnnealingLR" or not length:
        return None
    times, rates = reading.calls / length, reading.rates
    low = rates[-1] <= 0.1 * reading.peak
    if times <= rule.OVER or (low and times < rule.SWUNG):
        return None
    swings = f"{times:.0f} times to and fro" if times >= rule.SWUNG else f"up again, to {figure(float(rates[-1]))}"
    return Trouble(
        f"{reading.name} with T_max={length:g} gets {reading.calls} calls ({every}): the rate swings {swings}",
        MISUSE,
        Severity.ERROR if times >= rule.SWUNG else Severity.WARNING,
        Fix("Make the schedule as long as the training.", f"CosineAnnealingLR(optimizer, T_max={reading.calls})"),
    )


def _run_down(reading: Reading, unit: str) -> Trouble | None:
    rates, name = reading.rates, reading.name
    settings = settings_of(reading.scheduler)
    last = max(settings.get("milestones") or [0]) if not hasattr(reading.scheduler, "_schedulers") else 0
    down = np.flatnonzero(rates < rule.RUN_DOWN * reading.peak)
    down = down[down > int(rates.argmax())]
    after = int(reading.steps[down[0]]) if len(down) else reading.calls
    if after <= HALF * reading.calls and bool((rates[down[0] :] <= rule.RUN_DOWN * reading.peak).all()):
        left = 1 - after / reading.calls
        return Trouble(
            f"{name} has run down after {after} of {reading.calls} calls (one after every {unit}): for the last "
            f"{left:.0%} of the run the rate is under a thousandth of its peak",
            EARLY,
            Severity.WARNING,
            Fix("Make the schedule as long as the training.", "total_steps = epochs * len(loader)"),
        )
    if unit == "update" and 0 < last <= rule.PASSED * reading.calls:
        return Trouble(
            f"the last milestone of {name}, {last}, is passed within {last / reading.calls:.1%} of the run's "
            f"{reading.calls} updates",
            EARLY,
            Severity.WARNING,
            Fix(
                "Give milestones in updates, or step it once an epoch.",
                "milestones=[30 * len(loader), 60 * len(loader)]",
            ),
        )
    zero = np.flatnonzero(rates == 0)
    zero = zero[zero > int(rates.argmax())]
    idle = 1 - reading.steps[zero[0]] / reading.calls if len(zero) else 0.0
    if idle >= rule.STUCK_AT_ZERO and not bool(rates[zero[0] :].any()):
        return Trouble(
            f"{name} is at zero for the last {idle:.0%} of the run, where nothing is learned any more",
            MISUSE,
            Severity.WARNING,
            Fix("Make the schedule as long as the training.", "total_steps = epochs * len(loader)"),
        )
    return None


def _warming(reading: Reading, every: str) -> Trouble | None:
    rates = reading.rates
    if len(rates) < 2 or not bool((np.diff(rates) >= 0).all()) or rates[-1] <= rates[0]:
        return None
    if rates[-1] >= NEARLY * reading.height and reading.name not in FOR_UPDATES:
        return None
    return Trouble(
        f"{reading.name} is still in its warm-up when the run ends: after {reading.calls} calls ({every}) the rate is "
        f"{figure(float(rates[-1]))} of {figure(reading.height)}",
        MISUSE,
        Severity.WARNING,
        Fix("Make the warm-up shorter than the run, a twentieth of it or so.", "warmup = total_steps // 20"),
    )


def _unfinished(reading: Reading, every: str) -> Trouble | None:
    length, peak = reading.length, reading.peak
    if length is None or length <= UNFINISHED * reading.calls:
        return None
    end = float(reading.rates[-1])
    if end < HALF * peak:
        return None
    return Trouble(
        f"{reading.name} is made for {length:g} calls and gets {reading.calls} ({every}): the run ends with the rate "
        f"at {end / peak:.0%} of its peak",
        MISUSE,
        Severity.WARNING,
        Fix("Make the schedule as long as the training.", f"T_max={reading.calls}  # or total_steps"),
    )
