"""The learning rate is too low: the loss falls, but glacially.

## What it means
Everything is wired up, gradients are fine, the loss goes down on a straight line, and at this pace the training would
need many times the steps it has. Each update changes the weights by a hundred-thousandth of their size where a
thousandth is usual. The model ends up hardly better than at its start, which is easily taken for a model that is too
small or for data without signal.

## Why it happens
- A rate for fine-tuning (0.00002) used on a model that starts from scratch.
- A rate for Adam (0.001 or less) used with SGD, whose steps scale with the gradient.
- A rate that was divided again and again while something else was broken, and never raised since.
- A schedule that multiplies several factors, or a warm-up that is longer than the run.

## How it is detected
Three things must hold. The weight matrices change by less than 0.0002 of their size in a step, all of them and through
nine tenths of the run. The loss still stands where a constant guess stands, or has lost less than a quarter of its
start (a twentieth, where the loss is not a known one). And it is still falling at the end at the pace of the whole
run, or has not moved at all. A run whose rate is still being warmed up is not judged, nor one whose loss was low from
the start (fine-tuning).

## How to fix it
Multiply the rate by ten until the loss falls quickly; back off by three when it gets unstable. A range test does this
in one short run. With SGD add momentum 0.9. Usual starting points: Adam 0.001, SGD with momentum 0.01 to 0.1.

## Known false alarms
Fine-tuning a good model on a loss that starts high by nature. Very long runs with a small rate by design, looked at
after their first steps.

## References
Smith, "Cyclical Learning Rates for Training Neural Networks" (2017). Bengio, "Practical Recommendations for
Gradient-Based Training of Deep Architectures" (2012). Karpathy, CS231n notes on update-to-weight ratios (2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, curves, movement, stages
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.movement import USUAL_RATIO, Movement
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="H003",
    name="learning-rate-too-low",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE, UPDATE_RATIO),
    explains=("underfitting", "plateau-or-saddle"),
)

LOW_RATIO = 2e-4
"""A fifth of USUAL_RATIO, for the typical layer."""
LOW_RATIO_ANY = 1e-3
"""No layer may move faster than is usual: where one does, the slow ones have another cause."""
SMALL_FALL = 0.25
"""Share of the start that may have been lost where the loss is known to start at chance and to end at zero."""
SMALL_FALL_UNKNOWN = 0.05
"""The same where neither is known; preference tuning at 5e-7 falls by more in its first hundred steps."""
NEAR_CHANCE = 0.6
"""Start over a constant guess: below this the model knew something, so small steps may be meant."""
STEADY = 0.3
"""Slope of the last third over that of the whole run; a curve that levels off has less."""
TRAVELLED = 0.05
"""Steps times relative update: a model that learns anything moves by a tenth of its weights and more."""
STOOD_STILL = 5e-4
"""The same for weights that cannot have gone anywhere, whatever the loss is made of; preference tuning at 5e-7 goes
farther in its first hundred steps."""
LEAST_STEPS = 40
SURE = 4.0
"""Standard errors by which a trend must differ from zero."""


def detect(run: Run) -> Iterator[Finding]:
    keys = run.keys(LOSS_TRAIN)
    moved, spans = movement.read(run), stages.stages(run)
    if (
        len(keys) != 1
        or (len(run.optimizers) > 1 and not spans)
        or moved is None
        or not moved.measured
        or len(moved) < 5
    ):
        return
    ratios_L = moved.typical(0.9)
    ratios_L = ratios_L[np.isfinite(ratios_L)]
    if not len(ratios_L) or np.median(ratios_L) == 0:
        return
    ratio, fastest = float(np.median(ratios_L)), float(ratios_L.max())
    curve = stages.parts(run, curves.read(run.scalar(LOSS_TRAIN, keys[0]), closely=False))[0]
    if ratio >= LOW_RATIO or fastest >= LOW_RATIO_ANY or is_warming_up(run):
        return
    if curve.broke_at is not None or len(curve) < LEAST_STEPS:
        return
    left = remaining(run, curve)
    if left is None or not (is_steady(curve) or is_motionless(run, moved, curve)):
        return
    yield _finding(run, curve, ratio, left)


def remaining(run: Run, curve: Curve) -> float | None:
    """End over start, where too little was gained and the start was that of a model that knows nothing; else None."""
    start, end = curves.level(curve.values, 0.1, end=False), curves.level(curve.values, 0.1)
    if curve.values.min() < 0 or start <= 0 or end > 1.1 * start:
        return None
    guess = baseline.chance(run)
    if guess is not None and start < NEAR_CHANCE * guess:
        return None
    most = SMALL_FALL if guess is not None and baseline.never_negative(run) else SMALL_FALL_UNKNOWN
    return end / start if end / start > 1 - most else None


def is_steady(curve: Curve) -> bool:
    """Falling over the whole run beyond doubt, and in its last third still at that pace."""
    whole, last = curves.trend(curve.values), curves.trend(curve.values[-(len(curve) // 3) :])
    return whole.sigmas < -SURE and 3 * last.change < STEADY * whole.change + 2 * 3 * _finite(last.error)


def is_motionless(run: Run, moved: Movement, curve: Curve) -> bool:
    """The weights can have moved by a few hundredths at most, and the loss stands where a constant guess stands; by a
    few ten-thousandths, where that is not known."""
    travelled = curves.median(moved.typical(0.9)) * max(run.steps, int(moved.steps[-1]) + 1)
    known = baseline.chance(run) is not None
    return travelled < (TRAVELLED if known else STOOD_STILL) and curves.trend(curve.values).sigmas < SURE


def is_warming_up(run: Run) -> bool:
    """The rate at the end is the highest there was, and it has been rising."""
    for key in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, key)
        if len(trace) > 1 and trace.values[-1] >= trace.values.max() and trace.values[-1] > 1.01 * trace.values[0]:
            return True
    return False


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 0.0


def _finding(run: Run, curve: Curve, ratio: float, left: float) -> Finding:
    rates = [float(run.scalar(LEARNING_RATE, k).values.max()) for k in run.keys(LEARNING_RATE)]
    rate = max(rates)
    factor = 10 ** max(1, round(math.log10(USUAL_RATIO / ratio)))
    optimizer = next(iter(run.optimizers.values()), None)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85 if ratio < LOW_RATIO / 2 else 0.75,
        title=f"Learning rate {figure(rate)} is too low: a step changes the weights by {figure(ratio)} of their size",
        summary=(
            f"After {len(curve)} recorded steps the loss is still {left:.0%} of its start. Updates are about "
            f"{USUAL_RATIO / ratio:.0f} times smaller than usual, so the model hardly moves."
        ),
        fix=Fix(
            f"Raise the learning rate by {factor:g} times, to about {figure(rate * factor)}.",
            movement.rewritten(run, optimizer, rate * factor)[0],
        ),
        evidence=[
            Evidence(
                f"relative update of the weight matrices {figure(ratio)}, usual is about {USUAL_RATIO:g}",
                UPDATE_RATIO.name,
                ratio,
                LOW_RATIO,
            ),
            Evidence(
                f"the loss ends at {left:.0%} of its start, still on a straight line",
                LOSS_TRAIN.name,
                left,
                1 - SMALL_FALL,
                curves.spark(curves.blocks(curve.values, 40)),
            ),
        ],
        where=[Place(file=optimizer.file, line=optimizer.line)] if optimizer and optimizer.file else [],
        first_step=int(curve.steps[0]),
        last_step=int(curve.steps[-1]),
        symptoms=("slow-descent",) if left < 0.99 else ("flat-from-start",),
    )
