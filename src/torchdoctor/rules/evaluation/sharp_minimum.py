"""Small changes of the weights raise the loss, and validation suffers: a sharp minimum.

## What it means
Where training has ended, the loss on the training samples is low for exactly these weights and much higher for weights
that differ by a little. Such a fit hangs on contributions that are large and cancel each other. Other samples disturb
that balance as noise in the weights does, so it tends to generalise worse than a flat place of the same training loss,
and it bears quantisation, pruning and averaging of weights badly.

## Why it happens
- A network that can follow much finer detail than the data has: sine units or periodic features of high frequency.
- Training on to a loss of next to nothing on few samples, without weight decay.
- Full-batch or very large-batch training at a small rate, where nothing drives the weights out of a narrow place.

## How it is detected
At most three times in a run, a forked child computes the loss of a training batch again, in eval mode, after noise was
added to every weight matrix: each row gets a normal direction of 5 % and of 20 % of its own norm, so that the scale of
a layer does not matter. The rise is the median over ten draws, as a share of the way from a constant guess's loss down
to the batch's own loss. The finding needs a model that has learned half of what there is to learn, a training loss that
had settled when it was measured (less than 5 % of the way came after it), noise of 20 % that costs half of the way, and
a validation loss that lies above the batch's by a tenth of it (info) or a quarter (warning). It is measured on Linux,
on the CPU, where the script runs no threads of its own and no other process shares the training; elsewhere it is
listed as not examined.

## How to fix it
Lower frequencies, or smaller initial weights where they set them; weight decay; smaller batches or a larger rate.
Sharpness-aware minimisation, or an average over the weights of the last epochs (torch.optim.swa_utils), look for flat
places outright.

## Known false alarms
Sharpness and generalisation go together only loosely. A network that fits an intricate function well is sharp, too
(of the zoo's healthy runs one loses 43 % to noise of 20 %), and many that overfit are flat: noise alone tells nothing,
and validation decides. Networks can be written anew so that they compute the same and are as sharp as one likes (Dinh
et al.), which scaling by rows prevents in part only. So it never stands above overfitting or a learning rate that is
too high, which explain it.

## References
Keskar et al., "On Large-Batch Training for Deep Learning: Generalization Gap and Sharp Minima" (2017). Li et al.,
"Visualizing the Loss Landscape of Neural Nets" (2018), for noise scaled by filters. Dinh et al., "Sharp Minima Can
Generalize for Deep Nets" (2017). Foret et al., "Sharpness-Aware Minimization" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import SharpnessFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

RULE = Rule(
    code="E008",
    name="sharp-minimum",
    family="evaluation",
    needs=(LOSS_TRAIN, LOSS_VALIDATION, SharpnessFact),
    fallback=True,
)

LEARNED = 0.5
"""Loss of the batch over a constant guess's: above it there is no minimum to speak of."""
SETTLED = 0.05
"""How far the training loss still fell after the measurement, as a share of the way from the guess."""
SHARP = 0.5
"""Rise by the larger noise, as a share of that way: half of what was learned. Healthy runs of the zoo have up to 0.43,
most of them under 0.1."""
APART, FAR_APART = 0.1, 0.25
"""How far validation lies above the training batch, as a share of that way."""
LEAST_DRAWS = 5
LEAST_PASSES = 2
"""Validation passes whose median is the level of the end."""


@dataclass(frozen=True)
class Sharpness:
    """One measurement against the way that a constant guess's loss leaves."""

    step: int
    loss: float
    guess: float
    rises: list[float]
    """for each size of noise, as a share of the way"""
    gap: float
    """validation above the batch's loss, as a share of the way"""
    validation: float
    left: float
    """how far the training loss fell after the measurement"""


def detect(run: Run) -> Iterator[Finding]:
    step, fact = run.facts_at(SharpnessFact)[-1]
    state = read(run, step, fact)
    if state is None or state.left > SETTLED or state.rises[-1] < SHARP or state.gap < APART:
        return
    grave = state.gap >= FAR_APART
    small, large = fact.sizes[0], fact.sizes[-1]
    yield RULE.finding(
        severity=Severity.WARNING if grave else Severity.INFO,
        confidence=0.6 if grave else 0.5,
        title=f"Noise of {large:.0%} in the weights undoes {min(state.rises[-1], 9.99):.0%} of what training gained",
        summary=(
            f"On a training batch the loss goes from {figure(state.loss)} to {figure(_level(fact, -1))} when each row "
            f"of the weight matrices is moved by {large:.0%} of its norm; a constant guess scores "
            f"{figure(state.guess)}. Validation lies at {figure(state.validation)}. The fit hangs on exact values of "
            "the weights."
        ),
        fix=Fix(
            "Lower frequencies or smaller initial weights, where there are such; weight decay; smaller batches or a "
            "larger rate; or average the weights of the last epochs.",
            movement.with_setting(run, weight_decay=1e-1),
        ),
        evidence=[
            Evidence(
                f"loss of a training batch {figure(state.loss)}, with {small:.0%} noise {figure(_level(fact, 0))}, "
                f"with {large:.0%} {figure(_level(fact, -1))}",
                value=state.rises[-1],
                threshold=SHARP,
            ),
            Evidence(
                f"validation loss {figure(state.validation)}, {state.gap:.0%} of the gain above that batch",
                LOSS_VALIDATION.name,
                state.validation,
                state.loss + APART * (state.guess - state.loss),
            ),
        ],
        first_step=step,
        last_step=step,
    )


def read(run: Run, step: int, fact: SharpnessFact) -> Sharpness | None:
    """None where there is no yardstick, or nothing was learned, or the draws are too few."""
    guess = baseline.chance(run)
    losses = curves.read(run.scalar(LOSS_TRAIN), closely=False)
    validation = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    draws = min((len(found) for found in fact.losses), default=0)
    if guess is None or draws < LEAST_DRAWS or len(validation) < LEAST_PASSES or len(losses) < LEAST_DRAWS:
        return None
    way = guess - fact.loss
    if fact.loss > LEARNED * guess or losses.broke_at is not None:
        return None
    late = float(np.median(validation.values[-3:]))
    before = losses.values[losses.steps <= step]
    width = max(3, len(losses) // 20)
    left = float(np.median(before[-width:]) - np.median(losses.values[-width:])) if len(before) >= 3 else math.inf
    rises = [_level(fact, i) - fact.loss for i in range(len(fact.sizes))]
    return Sharpness(
        step=step,
        loss=fact.loss,
        guess=guess,
        rises=[rise / way for rise in rises],
        gap=(late - fact.loss) / way,
        validation=late,
        left=left / way,
    )


def _level(fact: SharpnessFact, size: int) -> float:
    return float(np.median(fact.losses[size]))
