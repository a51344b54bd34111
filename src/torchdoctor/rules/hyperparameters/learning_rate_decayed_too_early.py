"""The learning rate has run down while the loss was still falling.

## What it means
The schedule has brought the rate to next to nothing with much of the run still to come. From there on the weights
stand still: the loss is flat not because the model has learned all it can, but because it is no longer allowed to.
The curve looks just like one that has converged.

## Why it happens
- A schedule made for fewer epochs or steps than are run: `T_max`, `total_steps`, milestones from another set-up.
- A decay that multiplies at every epoch (gamma 0.1 and step size 1), or at every batch where epochs were meant.
- A plateau scheduler with too little patience on a noisy loss.
- Two schedules on one optimizer, or a schedule on top of a decay by hand.

## How it is detected
The rate falls under 2 % of its peak and stays there for at least a quarter of the run. The loss was still falling,
beyond doubt, when the rate began to go down (half of the peak), or more than 60 % of the run is spent without a rate;
since it is down, the loss has gained next to nothing; and it stands far from its floor, above a quarter of where it
began.

## How to fix it
Let the schedule end where the run ends: pass the number of updates (or epochs, if it is stepped once an epoch) that are
really run. Print the rate beside the loss.

## Known false alarms
Schedules that divide the rate when the loss has levelled off are not reported: there the loss was no longer falling
(a plateau scheduler is reported on a falling loss only). Nor are warm restarts and cycles, whose rate comes back, nor
schedules that end with the run.

## References
Loshchilov and Hutter, "SGDR" (2017). Goodfellow, Bengio and Courville, "Deep Learning" (2016), section 8.3.1. PyTorch
documentation, "How to adjust learning rate".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import SchedulerFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN

RULE = Rule(
    code="H004",
    name="learning-rate-decayed-too-early",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE),
    explains=("learning-rate-too-low", "underfitting", "plateau-or-saddle", "capacity-too-low", "noisy-labels"),
)

RUN_DOWN = 0.02
"""Share of the peak at which a schedule has ended. Usual schedules end at a tenth, a hundredth or zero, and do it with
the run."""
STILL_HIGH = 0.5
"""Share of the peak under which the rate is on its way down."""
REST_OF_RUN = 0.25
"""Share of the run that is left when the rate is down; step schedules spend up to a fifth there."""
MOST_OF_RUN = 0.6
"""Share of the run that nobody means to spend at no rate at all, whatever the loss did before."""
FELL_BEFORE = 0.05
"""Share of its level that the loss lost in the last stretch before the rate went down."""
GAINED_AFTER = 0.05
"""Share of its level that it has lost since."""
FAR_FROM_FLOOR = 0.25
"""End over start: below, most of what there was to learn is learned."""
SURE = 2.0
LEAST_STEPS = 30


@dataclass(frozen=True)
class Decay:
    """When a rate went down for good."""

    peak: float
    end: float
    falls_at: int
    """from here on under half of the peak"""
    down_at: int
    """from here on under RUN_DOWN of the peak"""


def detect(run: Run) -> Iterator[Finding]:
    loss, decay = loss_curve(run), decay_of(run)
    if loss is None or decay is None or loss.broke_at is not None or len(loss.curve) < LEAST_STEPS:
        return
    curve = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False)
    if curve.values.min() < 0:
        return
    last = int(curve.steps[-1])
    if last - decay.down_at < max(LEAST_STEPS, REST_OF_RUN * last):
        return
    fell, gained = fall_before(loss.curve, decay.falls_at), gain_after(curve, decay.down_at)
    was_falling = fell is not None and fell >= FELL_BEFORE
    idle = (last - decay.down_at) / last
    if not was_falling and (idle < MOST_OF_RUN or waits_for_plateau(run)):
        return
    if gained is None or gained > GAINED_AFTER:
        return
    start, end = curves.level(loss.curve.values[:LEAST_STEPS], 0.2, end=False), curves.level(curve.values)
    if end > FAR_FROM_FLOOR * start:
        yield _finding(run, decay, curve, fell if was_falling else None, gained, end)


def waits_for_plateau(run: Run) -> bool:
    """A scheduler decays when the loss has levelled off: then standing still is what it was told to wait for."""
    return any("Plateau" in f.type for f in run.facts(SchedulerFact))


def decay_of(run: Run) -> Decay | None:
    """How the rates went down; None where that of any group did not, or came back."""
    found: list[Decay] = []
    for key in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, key)
        rates = trace.values[np.isfinite(trace.values)]
        if not len(rates) or len(rates) != len(trace) or rates.max() <= 0:
            return None
        peak = float(rates.max())
        high, alive = np.flatnonzero(rates > STILL_HIGH * peak), np.flatnonzero(rates > RUN_DOWN * peak)
        if alive[-1] + 1 >= len(rates):
            return None
        found.append(Decay(peak, float(rates[-1]), int(trace.steps[high[-1]]), int(trace.steps[alive[-1] + 1])))
    return max(found, key=lambda d: d.down_at, default=None)


def fall_before(curve: Curve, step: int) -> float | None:
    """The share of its level that the loss lost over the last third before that step; None where it cannot be told
    from noise."""
    before = curve.until(step).values
    if len(before) < 9:
        return None
    third = len(before) // 3
    earlier, later = before[-2 * third : -third], before[-third:]
    fall = float(np.median(earlier) - np.median(later))
    error = 1.25 * curves.noise(before[-2 * third :]) * np.sqrt(2 / third)
    return fall / max(float(np.median(earlier)), 1e-12) if fall > SURE * error else None


def gain_after(curve: Curve, step: int) -> float | None:
    """The share of its level that the loss lost between that step and the end."""
    after = curve.values[curve.steps >= step]
    if len(after) < 6:
        return None
    third = len(after) // 3
    first, last = float(np.median(after[:third])), float(np.median(after[-third:]))
    return (first - last) / max(first, 1e-12)


def _finding(run: Run, decay: Decay, curve: Curve, fell: float | None, gained: float, end: float) -> Finding:
    last = int(curve.steps[-1])
    scheduler = run.last_fact(SchedulerFact)
    rest = (last - decay.down_at) / max(last, 1)
    name = scheduler.type if scheduler else "the schedule"
    rates = run.scalar(LEARNING_RATE, run.keys(LEARNING_RATE)[0]).values
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if fell is not None and rest > 0.5 else 0.8,
        title=f"The learning rate was down to nothing by step {decay.down_at}, with {rest:.0%} of the run to go",
        summary=(
            f"{name} took the rate from {figure(decay.peak)} to {figure(decay.end)} "
            f"{'while the loss was still falling' if fell is not None else 'before much was learned'}. "
            f"Since step {decay.down_at} the weights hardly move and the loss stays at {figure(end)}."
        ),
        fix=Fix(
            f"Stretch the schedule over the whole run of {last + 1} updates, or decay only when the loss levels off.",
            "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR("
            f"{receiver(run, 'step', 'optimizer')}, T_max={last + 1})  # stepped after every update",
        ),
        evidence=[
            Evidence(
                f"learning rate {figure(decay.peak)} at its peak, under half of it from step {decay.falls_at}, "
                f"under {RUN_DOWN:.0%} from step {decay.down_at}",
                LEARNING_RATE.name,
                decay.end,
                RUN_DOWN * decay.peak,
                curves.spark(rates),
            ),
            Evidence(
                (f"the loss was falling by {fell:.0%} in the stretch before, and " if fell is not None else "the loss ")
                + f"has changed by {-gained:.1%} since",
                LOSS_TRAIN.name,
                gained,
                GAINED_AFTER,
                curves.spark(curves.blocks(curve.values, 40)),
            ),
        ],
        where=[Place(file=scheduler.file, line=scheduler.line)] if scheduler and scheduler.file else [],
        first_step=decay.down_at,
        last_step=last,
        symptoms=("flat-after-drop",),
    )
