"""The learning rate schedule is stepped at the wrong times.

## What it means
A scheduler counts its own calls. What it was told about its length (`T_max`, `total_steps`, `step_size`, `gamma`) is in
calls, and only means what its author had in mind if it is called at that rhythm. Stepped per batch, a schedule made
for epochs has run down (or swings to and fro) within the first of them; stepped per epoch, one made for batches hardly
leaves its warm-up. Stepped before the optimizer, its first value is skipped; stepped on past its end, it climbs
again, sticks at zero or turns negative.

## Why it happens
`scheduler.step()` is indented one level too deep or too little, or a schedule was replaced by one of another unit. Old
examples call it at the start of the epoch. Training was made longer and the schedule was not.

## How it is detected
From the scheduler's own settings, after how many updates each of its calls came, and the rates that were applied.
Per batch: it is called at every update of a loop that has epochs, its settings make sense in epochs, and the rate is
down to a thousandth before half of the run (or a cosine has swung several times, or all milestones, which would fit
into the number of epochs, are behind it within two of them and a quarter of the run). Per epoch: it is called far less
often than there are updates, and its length equals the number of updates (or the rate is still warming up when the
training ends). Before the optimizer: its first call came before the first update and none after the last.

## How to fix it
OneCycleLR, CyclicLR and warm-ups: `scheduler.step()` after every `optimizer.step()`. StepLR, ExponentialLR and
CosineAnnealingLR with lengths in epochs: once at the end of every epoch. `total_steps = epochs * len(loader)`.

## Known false alarms
Warm restarts and cyclic schedules swing on purpose and are not judged by it. A schedule stepped per batch with settings
that only make sense in batches is taken as meant, however steep (see learning-rate-decayed-too-early). Runs that were
stopped early are not judged by where their schedule ends. A cosine of several full periods that ends low is taken
for a cycle.

## References
PyTorch documentation, torch.optim, "How to adjust learning rate" (since 1.1 the scheduler is called after the
optimizer). Smith and Topin, "Super-Convergence", 2017. Loshchilov and Hutter, "SGDR", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, LoaderFact, SchedulerFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import call_places, known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE

RULE = Rule(
    code="T009",
    name="scheduler-misuse",
    family="procedure",
    needs=(SchedulerFact, LEARNING_RATE),
    explains=(
        "learning-rate-decayed-too-early",
        "learning-rate-too-low",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "no-parameter-update",
        "loss-sign-flipped",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "missing-warmup",
        "optimizer-misconfigured",
    ),
)

RUN_DOWN = 1e-3
"""Of the peak, before half of the run: no schedule that is meant leaves the other half without a rate."""
PASSED = 0.25
"""Share of the run after which no milestone is left."""
SWUNG = 4
"""Half periods of a cosine that was to go down once."""
EVERY = 0.9
"""Calls over updates of a scheduler that is stepped with every update."""
SELDOM = 1 / 3
SAME_LENGTH = 0.05
"""A schedule's length and the number of updates that are meant to be equal."""
WARMING = 0.2
"""Share of the rate's full height under which a finished run never left its warm-up."""
OVER = 1.2
"""Calls over length from which a cosine has visibly turned up again."""
STUCK_AT_ZERO = 0.2
"""Share of the run after the schedule has reached zero."""
MOSTLY_ZERO = 0.8
"""Above it the schedule was hardly ever at work: learning-rate-decayed-too-early or no-parameter-update tell that."""
LEAST_UPDATES = 20
LEAST_EPOCH = 4
CYCLIC = ("CosineAnnealingWarmRestarts", "CyclicLR", "SWALR", "SequentialLR", "ChainedScheduler")


@dataclass(frozen=True)
class Schedule:
    """One scheduler with the rates it made."""

    fact: SchedulerFact
    steps: np.ndarray
    rates: np.ndarray
    updates: int
    epoch: float | None
    """updates an epoch"""
    complete: bool
    """the training came to its own end"""
    initial: float | None

    @property
    def epochs(self) -> float:
        return self.updates / self.epoch if self.epoch else math.nan

    @property
    def each_update(self) -> bool:
        return self.fact.calls >= EVERY * self.updates

    @property
    def peak(self) -> float:
        return float(self.rates.max())

    @property
    def length(self) -> float | None:
        settings = self.fact.settings
        return next((float(settings[n]) for n in ("total_steps", "T_max", "total_iters") if n in settings), None)


@dataclass(frozen=True)
class Misuse:
    title: str
    summary: str
    fix: Fix
    severity: Severity
    confidence: float
    value: float | None = None
    threshold: float | None = None


def detect(run: Run) -> Iterator[Finding]:
    latest = {f.key: f for f in run.facts(SchedulerFact)}
    for fact in latest.values():
        schedule = _read(run, fact) if not fact.nested else None
        misuse = _judge(schedule) if schedule is not None else None
        if schedule is not None and misuse is not None:
            yield _finding(run, schedule, misuse)
            return


def _read(run: Run, fact: SchedulerFact) -> Schedule | None:
    key = next((k for k in run.keys(LEARNING_RATE) if k.startswith(f"{fact.optimizer}.")), None)
    if key is None or run.steps < LEAST_UPDATES:
        return None
    curve = curves.read(run.scalar(LEARNING_RATE, key))
    if not len(curve):
        return None
    optimizer = run.optimizers.get(fact.optimizer or "")
    initial = optimizer.groups[0].get("initial_lr") if optimizer and optimizer.groups else None
    complete = run.finished and not run.info.get("exception")
    rate = float(initial) if isinstance(initial, (int, float)) else None
    return Schedule(fact, curve.steps, curve.values, run.steps, _epoch(run), complete, rate)


def _epoch(run: Run) -> float | None:
    """Updates an epoch: by the training loader and the backwards of an update, or from validation to validation."""
    phase = run.phase
    loaders = [f.batches for f in run.facts(LoaderFact) if f.phase == TRAIN and f.batches]
    if loaders and phase is not None and phase.backwards:
        return max(loaders) * phase.updates / phase.backwards
    if phase is not None and phase.validations >= 2 and phase.updates_between_validations:
        return phase.updates_between_validations
    return None


def _judge(schedule: Schedule) -> Misuse | None:
    if schedule.rates.min() < 0:
        return _negative(schedule)
    if schedule.fact.calls == 0:
        return _never(schedule)
    if schedule.fact.type not in CYCLIC and (found := _per_batch(schedule)):
        return found
    if schedule.complete:
        return _per_epoch(schedule) or _before_optimizer(schedule) or _past_its_end(schedule)
    return None


def _negative(schedule: Schedule) -> Misuse:
    return Misuse(
        f"the schedule runs past its end: the learning rate is negative, down to {figure(float(schedule.rates.min()))}",
        "With a rate below zero the optimizer climbs: it undoes what was learned.",
        Fix("Let the schedule end at zero or above.", "lambda step: max(0.0, 1 - step / total_steps)"),
        Severity.ERROR,
        0.95,
        float(schedule.rates.min()),
        0.0,
    )


def _never(schedule: Schedule) -> Misuse | None:
    one_epoch = schedule.epoch is None or schedule.updates >= schedule.epoch
    if not schedule.complete or not one_epoch or schedule.fact.type in CYCLIC or np.ptp(schedule.rates) > 0:
        return None
    return Misuse(
        f"{schedule.fact.type} is built and never stepped",
        f"A schedule exists, but its step() was not called once in {schedule.updates} updates: the rate stayed at "
        f"{figure(schedule.peak)}.",
        Fix("Call it: at the end of every epoch, or after every update.", "scheduler.step()"),
        Severity.WARNING,
        0.9,
        0.0,
        1.0,
    )


def _per_batch(schedule: Schedule) -> Misuse | None:
    """A schedule whose settings are in epochs, called at every update."""
    epoch, fact = schedule.epoch, schedule.fact
    if not schedule.each_update or epoch is None or epoch < LEAST_EPOCH or schedule.updates < 2 * epoch:
        return None
    length = fact.settings.get("T_max")
    if length is not None:
        swings = schedule.updates / float(length)
        if swings < SWUNG or length > epoch * 2:
            return None
        how = f"it swings {swings:.0f} times between {figure(schedule.peak)} and {figure(float(schedule.rates.min()))}"
        return _too_often(schedule, how, swings, float(SWUNG))
    last = max(fact.settings.get("milestones") or [0])
    if 0 < last <= min(schedule.epochs, 2 * epoch, PASSED * schedule.updates):
        how = f"its last milestone, {last}, was passed within {last / epoch:.1f} epochs"
        return _too_often(schedule, how, float(last), 2 * epoch)
    down = np.flatnonzero(schedule.rates < RUN_DOWN * schedule.peak)
    down = down[down > int(schedule.rates.argmax())]  # a warm-up may begin at zero
    if not len(down) or not _makes_sense_in_epochs(schedule):
        return None
    at = int(schedule.steps[int(down[0])])
    if at > (schedule.updates / 2 if schedule.complete else 2 * epoch):
        return None
    how = f"after {at} updates ({at / epoch:.1f} epochs) it is under a thousandth of its peak"
    return _too_often(schedule, how, float(at), schedule.updates / 2)


def _too_often(schedule: Schedule, how: str, value: float, threshold: float) -> Misuse:
    return Misuse(
        f"{schedule.fact.type} is stepped after every batch, its settings are in epochs",
        f"It was called {schedule.fact.calls} times in {schedule.updates} updates, {schedule.epoch:.0f} to an epoch, "
        f"and {how}.",
        Fix(
            "Step it once an epoch, after the loop over the batches.",
            "for epoch in range(epochs):\n    train_one_epoch()\n    scheduler.step()",
        ),
        Severity.ERROR,
        0.92,
        value,
        threshold,
    )


def _makes_sense_in_epochs(schedule: Schedule) -> bool:
    """Called once an epoch it would have done something by the end, and not too much."""
    settings, epochs = schedule.fact.settings, schedule.epochs
    if "step_size" in settings:
        return float(settings["step_size"]) <= epochs
    if settings.get("milestones"):
        return float(settings["milestones"][0]) <= epochs
    if "patience" in settings or schedule.fact.type in ("LambdaLR", "MultiplicativeLR", "PolynomialLR", "LinearLR"):
        return True
    if "gamma" in settings:
        return bool(RUN_DOWN <= float(settings["gamma"]) ** epochs < 0.98)
    return False


def _per_epoch(schedule: Schedule) -> Misuse | None:
    """A schedule made for every update, called far less often."""
    fact, length = schedule.fact, schedule.length
    if fact.calls > SELDOM * schedule.updates or fact.type in CYCLIC[:1]:
        return None
    rising = bool(np.all(np.diff(schedule.rates) >= 0)) and schedule.rates[-1] > schedule.rates[0]
    if length is not None and abs(length - schedule.updates) <= max(2.0, SAME_LENGTH * schedule.updates):
        how = f"its length of {length:.0f} calls is that of the training in updates ({schedule.updates})"
        value, threshold = float(fact.calls), length
    elif rising and schedule.initial and length is None and schedule.peak < WARMING * schedule.initial:
        how = f"the rate was still warming up at the end, at {schedule.peak / schedule.initial:.0%} of its full height"
        value, threshold = schedule.peak, WARMING * schedule.initial
    else:
        return None
    return Misuse(
        f"{fact.type} is stepped {fact.calls} times, it was made for every update",
        f"It was called {fact.calls} times in {schedule.updates} updates, but {how}.",
        Fix("Step it after every update.", "optimizer.step()\nscheduler.step()"),
        Severity.ERROR,
        0.9,
        value,
        threshold,
    )


def _before_optimizer(schedule: Schedule) -> Misuse | None:
    fact = schedule.fact
    early = fact.called_at.count(0) == 1 and fact.calls >= 3
    if not early or fact.last_at >= schedule.updates:
        return None
    return Misuse(
        f"{fact.type} is stepped before the optimizer: its first rate is skipped",
        "The first call of the scheduler came before the first update, and none came after the last: every rate is "
        "applied one call too early, and the first one never.",
        Fix("Call the scheduler after the optimizer.", "optimizer.step()\nscheduler.step()"),
        Severity.WARNING,
        0.92,
        0.0,
        1.0,
    )


def _past_its_end(schedule: Schedule) -> Misuse | None:
    fact, rates, length = schedule.fact, schedule.rates, schedule.fact.settings.get("T_max")
    if (
        length
        and OVER * length < fact.calls < 3 * length
        and rates[-1] > 0.1 * schedule.peak
        and rates[-1] > rates.min()
    ):
        return Misuse(
            f"{fact.type} is stepped past its end: the rate climbs again, to {figure(float(rates[-1]))}",
            f"The cosine was to go down over {length:.0f} calls and was called {fact.calls} times; after its end it "
            "mirrors itself.",
            Fix("Make the schedule as long as the training.", f"CosineAnnealingLR(optimizer, T_max={fact.calls})"),
            Severity.WARNING,
            0.85,
            float(fact.calls),
            float(length),
        )
    zero = np.flatnonzero(rates == 0)
    idle = 1 - float(schedule.steps[int(zero[0])]) / schedule.updates if len(zero) else 0.0
    if STUCK_AT_ZERO <= idle <= MOSTLY_ZERO and not np.any(rates[int(zero[0]) :] > 0):
        return Misuse(
            f"{fact.type} has run out: the learning rate is 0 for the last {idle:.0%} of the updates",
            "The schedule is shorter than the training. From its end on nothing changes any more.",
            Fix("Make the schedule as long as the training.", "total_steps = epochs * len(loader)"),
            Severity.WARNING,
            0.92,
            idle,
            STUCK_AT_ZERO,
        )
    return None


def _finding(run: Run, schedule: Schedule, misuse: Misuse) -> Finding:
    fact = schedule.fact
    settings = ", ".join(f"{k}={v:g}" if isinstance(v, (int, float)) else f"{k}={v}" for k, v in fact.settings.items())
    first = f", the first ones after {', '.join(map(str, fact.called_at[:3]))} updates" if fact.called_at else ""
    return RULE.finding(
        severity=misuse.severity,
        confidence=misuse.confidence,
        proof=Proof.STRUCTURE,
        title=misuse.title,
        summary=misuse.summary,
        where=known(
            Place(file=fact.file, line=fact.line),
            Place(file=fact.made_file, line=fact.made_line),
            *call_places(run, "step"),
        ),
        first_step=0,
        evidence=[
            Evidence(
                f"{fact.type}({settings}): {fact.calls} calls in {schedule.updates} updates{first}",
                SchedulerFact.kind,
                misuse.value,
                misuse.threshold,
            ),
            Evidence(
                f"the rate went from {figure(float(schedule.rates[0]))} to {figure(float(schedule.rates[-1]))}, "
                f"at most {figure(schedule.peak)}",
                LEARNING_RATE.name,
                float(schedule.rates[-1]),
                None,
                curves.spark(schedule.rates),
            ),
        ],
        fix=misuse.fix,
        symptoms=("flat-after-drop", "sawtooth") if "batch" in misuse.title else ("slow-descent",),
    )
