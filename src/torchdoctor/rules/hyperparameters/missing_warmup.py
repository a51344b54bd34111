"""No warm-up: the first steps of an adaptive optimizer throw the model off.

## What it means
Adam and its relatives divide each gradient by an average of past ones. On the first steps there is no past: every
element moves by the full rate whatever its gradient is worth, on weights that are not adapted to anything yet. The
loss shoots up, and a good part of the run goes into coming back; in deep transformers it may never come back. Later on
the very same rate is fine.

## Why it happens
- The rate of a recipe was taken over without its warm-up, or the scheduler is made and never stepped.
- Post-norm transformers and deep plain networks, whose first gradients are large and uneven.
- A rate that was raised until the end of training looked good, with nobody looking at its beginning.

## How it is detected
The optimizer is adaptive and starts with its highest rate. Within the first twentieth of the run the loss rises to half
above its start and more (a running median, so no single batch) or, in a single step, to five times its start. It is not
back below its start (and not thrown up again soon after) before at least ten steps, or five with ten times the start's
loss added up above it, and in both cases a fiftieth of the run. The first updates change the weights by 8 % of their
size and more, at least three times what they do later. Then it recovers, at a rate that was not lowered before it
recovered, and stays below its start: it ends below half of it (below a fifth after first updates that replace most of
the weights), or has fallen since it was back and does not rise in the last half. So the rate suits the model, and only
the beginning did not.

## How to fix it
Raise the rate linearly from nearly zero over the first 1 to 10 % of the steps. Or lower the rate, or use pre-norm
blocks.

## Known false alarms
A first batch that happens to be easy makes the next ones look like a rise; the running median and the length of the
rise rule it out. A run that never recovers, or whose first update is several times as large as the weights, is told as
learning-rate-too-high.

## References
Goyal et al., "Accurate, Large Minibatch SGD" (2017). Vaswani et al., "Attention Is All You Need" (2017). Liu et al.,
"On the Variance of the Adaptive Learning Rate and Beyond" (2020). Xiong et al., "On Layer Normalization in the
Transformer Architecture" (2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.curves import Curve, Floats, figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="H005",
    name="missing-warmup",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE, UPDATE_RATIO),
    explains=("learning-rate-too-high", "exploding-gradients", "dead-relu", "saturated-activations", "outlier-batch"),
)

ADAPTIVE = ("Adam", "AdamW", "NAdam", "Adamax", "RMSprop", "Adagrad", "Adafactor", "Lion")
RISEN, SPIKE = 1.5, 5.0
"""Running median of five, or a single step, over the start; fresh batches vary by less."""
FIRST_PART, FIRST_STEPS = 0.05, 60
"""The rise must come within this share of the run, or so many steps."""
LASTED, LASTED_SHARE = 10, 0.02
"""Steps until it is back, and as a share of the run."""
STAYS = 15
"""Steps within which a loss that is back may be thrown up again by the same first updates: Adam's average of squares
forgets half of them in 700, but its steps are those of a fresh start for ten to twenty."""
SHORT, ADDED_UP = 5, 10.0
"""A shorter rise counts where it is so high that the loss above the start adds up to that many times the start."""
LARGE_FIRST_UPDATE = 0.08
"""Relative change of the weight matrices in the first steps, eighty times the usual thousandth."""
REPLACED = 5.0
"""A first update of several times the weights leaves nothing of them: no warm-up makes such a rate a good one."""
LARGER_THAN_LATER = 3.0
RECOVERED, RECOVERED_WELL, BELOW = 0.5, 0.2, 0.9
"""End over start: the rate does work; it does though the first update replaced most of the weights; and where it still
falls."""
MOST_REPLACED = 0.7
"""See learning-rate-too-high: one step rewrites the layers, and a loss that stays up afterwards is that rule's."""
STILL_FALLING = 4.0
"""Standard errors of the slope since the loss is back."""
RISES = 2.0
"""Those of the last half, from which on it rises."""
THROWN_AGAIN = 0.02
"""Share of the last half above the start: such a run is thrown up time and again, so its rate is too high as it is."""
NO_WARMUP = 0.9
"""First rate over the highest of the first part."""
LEAST_STEPS = 100


@dataclass(frozen=True)
class Throw:
    """How the first steps threw the loss."""

    start: float
    peak: float
    back_at: int
    steps: int
    """until it was back below the start"""
    first: float
    later: float
    """relative updates"""


def detect(run: Run) -> Iterator[Finding]:
    loss = loss_curve(run)
    optimizer = next(iter(run.optimizers.values()), None)
    if loss is None or loss.broke_at is not None or optimizer is None or len(run.optimizers) > 1:
        return
    if optimizer.type not in ADAPTIVE or len(loss.curve) < LEAST_STEPS or loss.curve.values.min() < 0:
        return
    throw = throw_of(run, loss.curve, loss.end)
    if throw is not None and starts_high(run, throw.back_at):
        yield _finding(run, throw, loss.curve)


def throw_of(run: Run, curve: Curve, end: float) -> Throw | None:
    moved = movement.read(run)
    if moved is None or not moved.measured or len(moved) < 5:
        return None
    middle_S = moved.middle_S[np.isfinite(moved.middle_S)]
    if len(middle_S) < 5:
        return None
    first, later = float(middle_S[:3].max()), float(np.median(middle_S[len(middle_S) // 2 :]))
    if not LARGE_FIRST_UPDATE <= first <= REPLACED or first < LARGER_THAN_LATER * later:
        return None
    guess = baseline.chance(run)
    start = max(float(curve.values[0]), guess if guess is not None else 0.0)
    if start <= 0:
        return None
    level_S = curves.smooth(curve.values, 5)
    last = int(curve.steps[-1])
    early = curve.steps <= max(FIRST_STEPS, FIRST_PART * last)
    spikes = early.any() and curve.values[early].max() >= SPIKE * start
    if not spikes and (not early.any() or level_S[early].max() < RISEN * start):
        return None
    height_S = curve.values if spikes else level_S
    peak_at = int(np.argmax(np.where(early, height_S, -np.inf)))
    back = _back_below(curve.values, level_S, peak_at, start)
    spent = int(curve.steps[back] - curve.steps[0])
    added_up = float(np.maximum(curve.values[: back + 1] / start - 1, 0).sum())
    if spent < max(SHORT if spikes and added_up >= ADDED_UP else LASTED, LASTED_SHARE * last):
        return None
    if not _recovers(curve, back, start, end, first):
        return None
    return Throw(start, float(height_S[peak_at]), int(curve.steps[back]), spent, first, later)


def _back_below(values: Floats, level_S: Floats, peak_at: int, start: float) -> int:
    """Where the loss is below its start again, and is not thrown up once more soon after."""
    last = peak_at
    for i in peak_at + np.flatnonzero(values[peak_at:] >= RISEN * start):
        if i > last + STAYS:
            break
        last = int(i)
    below = np.flatnonzero(level_S[last:] < start)
    return last + int(below[0]) if len(below) else len(level_S) - 1


def _recovers(curve: Curve, back: int, start: float, end: float, first: float) -> bool:
    late = curve.values[curve.steps >= curve.steps[-1] / 2]
    if float((late > start).mean()) > THROWN_AGAIN:
        return False
    since, lately = curves.trend(curve.values[back:]), curves.trend(late)
    falls = end <= BELOW * start and since.sigmas <= -STILL_FALLING and lately.sigmas < RISES
    return falls or end <= (RECOVERED if first < MOST_REPLACED else RECOVERED_WELL) * start


def starts_high(run: Run, until: int) -> bool:
    """The rate begins at its highest and is not lowered before the loss has come back."""
    for key in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, key)
        head = trace.first()
        before = head.values[head.steps <= until]
        if not len(before) or head.values[0] < NO_WARMUP * curves.greatest(trace.values):
            return False
        if before[-1] < 0.5 * head.values[0]:
            return False
    return bool(run.keys(LEARNING_RATE))


def _finding(run: Run, throw: Throw, curve: Curve) -> Finding:
    optimizer = next(iter(run.optimizers.values()))
    rate = curves.greatest(run.scalar(LEARNING_RATE, run.keys(LEARNING_RATE)[0]).values)
    warmup = max(20, int(0.05 * curve.steps[-1]))
    name = receiver(run, "step", "optimizer")
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.78,
        title=f"{optimizer.type} starts at its full rate of {figure(rate)}: the first steps throw the loss off",
        summary=(
            f"The loss went from {figure(throw.start)} to {figure(throw.peak)} and took {throw.steps} steps to return. "
            f"At the same rate it trains well later, so only the beginning is too fast."
        ),
        fix=Fix(
            f"Warm the rate up over the first {warmup} steps.",
            f"warmup = torch.optim.lr_scheduler.LinearLR({name}, start_factor=0.01, total_iters={warmup})  "
            "# warmup.step() after every update",
        ),
        evidence=[
            Evidence(
                f"loss {figure(throw.start)} at the start, {figure(throw.peak)} soon, back at step {throw.back_at}",
                LOSS_TRAIN.name,
                throw.peak / throw.start,
                RISEN,
                curves.spark(curve.values),
            ),
            Evidence(
                f"the first updates change the weights by {throw.first:.1%} of their size, later ones by "
                f"{figure(100 * throw.later)} %",
                UPDATE_RATIO.name,
                throw.first,
                LARGE_FIRST_UPDATE,
            ),
        ],
        where=[Place(file=optimizer.file, line=optimizer.line)] if optimizer.file else [],
        first_step=0,
        last_step=throw.back_at,
        symptoms=("spikes",),
    )
