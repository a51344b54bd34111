"""The end of a run at a constant rate: how much of its loss is bounce, and whether noise or curvature makes it.

Around a minimum a step of plain gradient descent at rate r with gradient g keeps the loss above the minimum's by
r*|g|^2/4 on average, whatever the curvature and the noise (it follows from the weights' mean square being at rest;
Yaida, "Fluctuation-dissipation relations for stochastic gradient descent", 2019). Momentum m makes the rate r/(1-m);
Adam divides each element by its typical size, which leaves r*sum|g|/4 up to a factor near one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, OptimizerFact
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.curves import Curve
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.run import Run, Trace
from torchdoctor.signals import (
    BATCH_SIZE,
    GRADIENT,
    GRADIENT_COSINE,
    GRADIENT_GLOBAL_L2,
    LEARNING_RATE,
    LOSS_CALLED,
    LOSS_EVENTS,
    LOSS_TRAIN,
)

LATE = 0.5
"""The part of the run that is judged: its last half."""
CONSTANT = 0.5
"""Least over greatest rate of the late part, for a rate that is not being decayed."""
ROOT_MEAN_SQUARE = 1.25
"""Root mean square of a normal variable over its mean magnitude."""
ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop")
PROGRESS = -0.1
"""Change over the last half, as a share of the level, that is worth something."""
SURE, NO_TREND = 3.0, 1.0
LEAST_LOOKS = 2
"""Where steps are short, forced looks alone leave two or three to the last half."""
LEAST_STEPS = 60
MOST_OF_LOSS = 0.33
"""Share of the level that the length of the steps explains. Flat runs that go well were measured up to 0.26."""
SINCE, STEADY_LOOKS = 0.125, 6
"""The part of the run whose looks the steadier estimate takes in, and how many it needs."""


@dataclass(frozen=True)
class Settling:
    """The last half of a run at a constant rate."""

    curve: Curve
    """the whole training loss"""
    level: float
    """of the loss, in the last half"""
    left: float
    """level over what a constant guess scores, or over the start"""
    change: float
    """of the loss over the last half, as a share of the level; negative where it falls"""
    sigmas: float
    """the same in standard errors"""
    scatter: float
    """standard deviation from batch to batch, as a share of the level"""
    ending: float
    """its level in the last eighth of the run"""
    best: float
    """the lowest of the earlier stretches, as long as the late ones"""
    excess: float
    """the part of the loss that the length of the steps keeps up, as a share of the level"""
    cosine: float
    """between successive gradients, median of the last half; NaN where it was not measured (see steady_cosine)"""
    ratio: float
    """relative update of the weight matrices"""
    rate: float
    batch: float
    """samples behind one update; NaN where unknown"""

    @property
    def flat(self) -> bool:
        """No progress to speak of in the last half, or none that can be told from noise. Where a straight line finds no
        fall at all, a large change of the mean is one bump among others."""
        if self.sigmas > -NO_TREND:
            return True
        return self.change >= PROGRESS or (self.change >= 3 * PROGRESS and self.sigmas > -SURE)


def read(run: Run) -> Settling | None:
    """None where the loss is not one curve of one optimizer at a constant rate, or too short."""
    loss, optimizer = loss_curve(run), next(iter(run.optimizers.values()), None)
    if loss is None or loss.broke_at is not None or len(run.optimizers) != 1 or optimizer is None:
        return None
    curve = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False)
    rate = _constant_rate(run)
    if rate is None or len(curve) < LEAST_STEPS or curve.values.min() < 0:
        return None
    values = curve.values[curve.steps >= LATE * curve.steps[-1]]
    early = curve.values[curve.steps < LATE * curve.steps[-1]]
    level, excess = float(values.mean()), _excess(run, optimizer, rate)
    moved = movement.read(run)
    if level <= 0 or excess is None or moved is None or not moved.measured:
        return None
    ratio_S = moved.middle_S[moved.steps >= LATE * curve.steps[-1]]
    if not np.isfinite(ratio_S).any():
        return None
    guess = baseline.chance(run)
    cosine = _late(run.scalar(GRADIENT_COSINE))
    quarters = np.array_split(values, 2)
    return Settling(
        curve=curve,
        level=level,
        left=level / (guess if guess is not None else max(loss.begin, 1e-12)),
        change=float(quarters[1].mean() - quarters[0].mean()) * 2 / level,
        sigmas=curves.trend(values).sigmas,
        scatter=float(values.std()) / level,
        ending=float(np.array_split(values, 4)[-1].mean()),
        best=float(min((part.mean() for part in np.array_split(early, 4)[1:] if len(part)), default=math.nan)),
        excess=excess / level,
        cosine=float(np.median(cosine)) if len(cosine) >= LEAST_LOOKS else math.nan,
        ratio=curves.median(ratio_S),
        rate=rate,
        batch=_batch(run),
    )


def _late(trace: Trace) -> curves.Floats:
    values = trace.values[trace.steps >= LATE * (trace.steps[-1] if len(trace) else 0)]
    return values[np.isfinite(values)].astype(np.float64)


def _constant_rate(run: Run) -> float | None:
    """The rate of the last half, where all groups have about the same and it is not being decayed."""
    late = [_late(run.scalar(LEARNING_RATE, key)) for key in run.keys(LEARNING_RATE)]
    rates = np.concatenate(late) if late else np.zeros(0)
    if not len(rates) or rates.min() <= 0 or rates.min() < CONSTANT * rates.max():
        return None
    return float(np.median(rates))


def _length(optimizer: OptimizerFact, rate: float) -> float:
    """The rate as momentum makes it."""
    group = optimizer.groups[0] if optimizer.groups else {}
    momentum = group.get("momentum") or 0.0
    momentum = momentum if isinstance(momentum, float) and momentum < 1 else 0.0
    damped = 1 - float(group.get("dampening") or 0.0) if momentum else 1.0
    return rate * damped / (1 - momentum)


def _excess(run: Run, optimizer: OptimizerFact, rate: float) -> float | None:
    """The height above the minimum at which steps of this length hold the loss."""
    length = _length(optimizer, rate)
    if optimizer.type == "SGD":
        norms = _late(run.scalar(GRADIENT_GLOBAL_L2))
        return length * float(np.square(norms).mean()) / 4 if len(norms) >= LEAST_LOOKS else None
    if optimizer.type not in ADAPTIVE:
        return None
    trace = run.matrix(GRADIENT["absmean"])
    late_ST = trace.values[trace.steps >= LATE * trace.steps[-1]] if len(trace) else trace.values
    sizes_T = np.array([math.prod(run.parameters[c].shape) if c in run.parameters else 0 for c in trace.columns])
    sums_S = np.nansum(late_ST * sizes_T, axis=1) if late_ST.size else np.zeros(0)
    return length * ROOT_MEAN_SQUARE * float(sums_S.mean()) / 4 if len(sums_S) >= LEAST_LOOKS else None


def steady_excess(run: Run, state: Settling) -> float:
    """The same excess from more looks. The last half has few, and a gradient over few samples has heavy tails. But its
    square goes with the loss of its own step, and their ratio is steady since early on. Looks know that loss; of the
    other steps a long record keeps means of several."""
    optimizer = next(iter(run.optimizers.values()))
    sgd = optimizer.type == "SGD"
    trace = run.scalar(GRADIENT_GLOBAL_L2)
    if sgd:
        sizes = dict(zip(trace.steps.tolist(), np.square(trace.values).tolist(), strict=True))
    else:
        matrix = run.matrix(GRADIENT["absmean"])
        count_T = np.array([math.prod(run.parameters[c].shape) if c in run.parameters else 0 for c in matrix.columns])
        sums_S = ROOT_MEAN_SQUARE * np.nansum(matrix.values * count_T, axis=1)
        sizes = dict(zip(matrix.steps.tolist(), sums_S.tolist(), strict=True))
    losses, called = run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), run.scalar(LOSS_CALLED)
    power = 1.0 if sgd else 0.5
    at = {
        int(step): float(value) ** power
        for part in (called, called.head, losses if losses.merged == 1 else None, losses.head)
        if part is not None
        for step, value in zip(part.steps, part.values, strict=True)
        if np.isfinite(value) and value >= 0
    }
    last = state.curve.steps[-1]
    common = [k for k in sizes if k >= SINCE * last and k in at and math.isfinite(sizes[k])]
    total = sum(at[k] for k in common)
    if len(common) < STEADY_LOOKS or total <= 0:
        return state.excess
    late = state.curve.values[state.curve.steps >= LATE * last]
    ratio = sum(sizes[k] for k in common) / total
    return _length(optimizer, state.rate) * ratio * float(np.power(late, power).mean()) / 4 / state.level


def steady_cosine(run: Run, state: Settling) -> float:
    """The same cosine from more looks, and their mean: between gradients over few samples it jumps between -1 and 1."""
    trace = run.scalar(GRADIENT_COSINE)
    values = trace.values[trace.steps >= SINCE * state.curve.steps[-1]]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) >= STEADY_LOOKS else state.cosine


def _batch(run: Run) -> float:
    sizes, backwards = _late(run.scalar(BATCH_SIZE, TRAIN)), _late(run.scalar(LOSS_EVENTS))
    if not len(sizes):
        return math.nan
    return float(np.median(sizes)) * (float(np.median(backwards)) if len(backwards) else 1.0)
