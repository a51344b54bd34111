"""Where in a curve to look: the places that give it away, computed from the curve itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchdoctor.plots.losses import find_spikes
from torchdoctor.rules.curves import figure, level, smooth
from torchdoctor.run import Run, Trace
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

SHOWN_SPIKES, STANDS_OUT = 3, 1.5
"""Spikes that are marked, and how many times the loss around it one must be."""
CLASSES = 1000
GUESS = 0.25
"""Of the way to the next number of classes: a loss farther off is not called a guess among them."""


@dataclass(frozen=True)
class Mark:
    """An arrow and a few words."""

    step: int
    value: float
    text: str
    side: str = "above"
    """of the place, where the words stand: above, below or right"""


def follows(run: Run) -> Sequence[Mark]:
    train, validation = _train(run), run.scalar(LOSS_VALIDATION)
    if not len(train):
        return ()
    early = _near(train, 0.2)
    marks = [Mark(int(train.steps[early]), _level_at(train, early), "falls fast at first, then slowly")]
    if len(validation):
        at = len(validation) // 2
        marks.append(
            Mark(int(validation.steps[at]), float(validation.values[at]), "validation goes along with training")
        )
    return marks


def leaps(run: Run) -> Sequence[Mark]:
    train = _train(run)
    if not len(train):
        return ()
    top, start = int(np.nanargmax(train.high)), float(train.values[0])
    marks = [Mark(int(train.steps[top]), float(train.high[top]), f"up to {figure(float(train.high[top]))}", "right")]
    end, at = level(train.values), _near(train, 0.7)
    said = f"ends at {figure(end)}, began at {figure(start)}"
    return [*marks, Mark(int(train.steps[at]), _level_at(train, at), said)]


def crawls(run: Run) -> Sequence[Mark]:
    train = _train(run)
    if not len(train):
        return ()
    begin, end, at = level(train.values, 0.1, end=False), level(train.values), _near(train, 0.85)
    left = f"after {train.steps[-1] + 1:,} steps {end / begin:.0%} of the loss is left" if begin > 0 else "hardly lower"
    return [Mark(int(train.steps[at]), _level_at(train, at), left)]


def parts(run: Run) -> Sequence[Mark]:
    train, validation = _train(run), run.scalar(LOSS_VALIDATION)
    if not len(validation) or not len(train):
        return ()
    best, last = int(np.nanargmin(validation.values)), float(validation.values[-1])
    late = _near(train, 0.85)
    return [
        Mark(
            int(validation.steps[best]),
            float(validation.values[best]),
            f"validation is best here: {figure(float(validation.values[best]))}",
            "below",
        ),
        Mark(int(validation.steps[-1]), last, f"and rises to {figure(last)}"),
        Mark(int(train.steps[late]), _level_at(train, late), "training falls on"),
    ]


def spikes(run: Run) -> Sequence[Mark]:
    train = _train(run)
    smoothed = smooth(train.values, max(3, len(train) // 20) | 1)
    found = find_spikes(train.high)
    highest = sorted(found, key=lambda row: -train.high[row])[:SHOWN_SPIKES]
    return [
        Mark(
            int(train.steps[row]),
            float(train.high[row]),
            f"{figure(float(train.high[row] / smoothed[row]))} times the loss around it",
        )
        for row in sorted(highest)
        if train.high[row] > STANDS_OUT * smoothed[row] > 0
    ]


def stays(run: Run) -> Sequence[Mark]:
    train = _train(run)
    if not len(train):
        return ()
    end, at = level(train.values), _near(train, 0.6)
    return [Mark(int(train.steps[at]), _level_at(train, at), f"stays at {figure(end)}{_guess(end)}")]


def swings(run: Run) -> Sequence[Mark]:
    validation, train = run.scalar(LOSS_VALIDATION), _train(run)
    swinging, name = (validation, "validation") if len(validation) >= 4 else (train, "the loss")
    if len(swinging) < 4:
        return ()
    half = len(swinging) // 3
    top, low = half + int(np.nanargmax(swinging.high[half:])), half + int(np.nanargmin(swinging.low[half:]))
    return [
        Mark(int(swinging.steps[top]), float(swinging.high[top]), f"{name} up to {figure(float(swinging.high[top]))}"),
        Mark(
            int(swinging.steps[low]),
            float(swinging.low[low]),
            f"{name} down to {figure(float(swinging.low[low]))}",
            "below",
        ),
    ]


def levels_off(run: Run) -> Sequence[Mark]:
    train, validation = _train(run), run.scalar(LOSS_VALIDATION)
    if not len(train):
        return ()
    at = _near(train, 0.55)
    marks = [Mark(int(train.steps[at]), _level_at(train, at), f"level at {figure(level(train.values))}", "below")]
    if len(validation):
        row = int(0.85 * len(validation))
        marks.append(Mark(int(validation.steps[row]), float(validation.values[row]), "validation close above: no gap"))
    return marks


def _train(run: Run) -> Trace:
    keys = run.keys(LOSS_TRAIN)
    return max((run.scalar(LOSS_TRAIN, key) for key in keys), key=len, default=Trace.empty())


def _near(trace: Trace, share: float) -> int:
    return min(len(trace) - 1, int(share * len(trace)))


def _level_at(trace: Trace, row: int) -> float:
    """Of the curve around there, not of one noisy step."""
    near = max(1, len(trace) // 40)
    return float(np.nanmedian(trace.values[max(0, row - near) : row + near + 1]))


def _guess(loss: float) -> str:
    """Whether that is what a blind guess scores: nearer to one number of classes than to the next."""
    classes = round(math.exp(loss)) if 0 < loss < math.log(CLASSES) else 0
    if classes < 2 or abs(loss - math.log(classes)) > GUESS / classes:
        return ""
    return f": a guess among {classes} scores {figure(math.log(classes))}"
