"""Training and validation are both poor, and equal: the model underfits.

## What it means
The loss on the training data has stopped falling (or was stopped) far from its floor, and validation says the same.
There is no gap between the two, so more data or regularisation will not help: the model, or its optimisation, does not
get hold of what is in the data. Or there is not more in it.

## Why it happens
- The run is too short: the loss is still falling when it ends.
- The model is too small, or of the wrong kind, for the task.
- Regularisation, clipping, a low or a decayed rate hold it back; those have diagnoses of their own, which stand first.
- The task is mostly noise, and the model is as good as any can be.

## How it is detected
The training loss ends above 70 % of what a constant guess scores, validation (where there is one) is within a fifth of
it, and no other diagnosis stands above this one (it is what is left to say). It is a warning in two cases. The loss is
still falling beyond doubt at the end of a finished run, at three quarters of the pace of the whole and more: then
longer training pays (not where three quarters of the mistakes of guessing are gone already: then only confidence is
still to come). Or the loss has arrived and what is left of it is no noise: residuals of nearest neighbours in the
training batches agree by 0.1 and more on average, four standard errors above zero, which a richer model would make use
of. For a model without a hidden layer that counts even if it learned nothing, and, with an agreement of 0.2, from 30 %
of a constant guess on. Otherwise noise cannot be told from a model that is too small, and it is an info.

## How to fix it
In this order: train longer, if the loss still falls; overfit one batch, to see whether the model can learn at all;
raise the rate; take a larger model. If it can learn a batch by heart and still not the whole, look for signal in the
data.

## Known false alarms
Tasks with little signal (finance, clicks) end close to a constant guess at their best. Quick tries of some dozen steps
are too short by intention; under sixty they are not judged.

## References
Goodfellow, Bengio and Courville, "Deep Learning" (2016), section 5.2. Karpathy, "A Recipe for Training Neural Networks"
(2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, structure
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.structure import Agreement
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION, RESIDUAL_AGREEMENT

RULE = Rule(
    code="E002",
    name="underfitting",
    family="evaluation",
    needs=(LOSS_TRAIN,),
    fallback=True,
)

POOR = 0.7
"""Training loss at the end over a constant guess."""
EQUAL = 0.2
"""Relative difference between training and validation that is none."""
STILL_AT_PACE = 0.75
"""Slope of the last third over that of the whole run, for a run that ended too soon."""
SURE = 4.0
LEAST_STEPS = 60
"""Fewer are a try, not a training."""
FLAT = 0.04
"""Fall over the last third, relative to the level, that is none."""
POOR_LINEAR = 0.3
"""The same as POOR for a model without a hidden layer whose errors agree plainly: capacity-too-low, which says this
of the others from here on, leaves it to this rule."""
RIGHT, LATE_LOOKS = 0.75, 3
"""Share of the mistakes of guessing that is gone in the last looks, from which on a classifier is not poor."""
LEAST_ARRIVED = 150
"""Before, a loss that stands still may not have begun to fall."""
MISSED, MISSED_SURELY = 0.1, 4.0
"""Agreement of neighbours' residuals, and its standard errors. In a small batch of many features the nearest is not
near, so that little of what is missed shows; noise shows nothing at all."""
LEARNED = 0.97
"""Level over a constant guess above which nothing at all was learned: other causes, and another symptom."""


def detect(run: Run) -> Iterator[Finding]:
    loss, guess = loss_curve(run), baseline.chance(run)
    if loss is None or guess is None or loss.broke_at is not None or len(run.optimizers) != 1 or not run.finished:
        return
    curve = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False)
    if run.steps < LEAST_STEPS or curve.values.min() < 0:
        return
    end = curves.level(curve.values)
    left = end / guess
    linear = structure.is_linear(run)
    agreement = structure.agreement(run)
    plain = linear and agreement is not None and agreement.is_structure
    if left <= (POOR_LINEAR if plain else POOR):
        return
    validation = curves.level(curves.read(run.scalar(LOSS_VALIDATION), closely=False).values)
    if np.isfinite(validation) and abs(validation - end) > EQUAL * end:
        return
    learned = left < LEARNED
    falling = learned and is_falling(curve) and not is_mostly_right(run)
    arrived = is_flat(curve) and run.steps >= LEAST_ARRIVED
    missed = agreement if arrived and (learned or linear) else None
    if missed is not None and not (missed.mean >= MISSED and missed.sigmas >= MISSED_SURELY):
        missed = None
    yield _finding(curve, end, left, validation, falling, missed)


def is_mostly_right(run: Run) -> bool:
    """A classifier that is right already and only gets surer: its loss is high, what it does is not poor."""
    gone = baseline.mistakes_gone(run, LATE_LOOKS)
    return gone is not None and gone > RIGHT


def is_flat(curve: Curve) -> bool:
    """No fall in the last third that is worth something or can be told from noise."""
    last = curves.trend(curve.values[-(len(curve) // 3) :])
    return last.sigmas > -SURE or last.change > -FLAT * curves.level(curve.values)


def is_falling(curve: Curve) -> bool:
    """Beyond doubt in the last third, at no less than three quarters of the pace of the whole run."""
    whole, last = curves.trend(curve.values), curves.trend(curve.values[-(len(curve) // 3) :])
    return last.sigmas < -SURE and whole.change < 0 and 3 * last.change < STILL_AT_PACE * whole.change


def _finding(
    curve: Curve, end: float, left: float, validation: float, falling: bool, missed: Agreement | None
) -> Finding:
    evidence = [
        Evidence(
            f"training loss {figure(end)} at the end, {left:.0%} of a constant guess",
            LOSS_TRAIN.name,
            left,
            POOR,
            curves.spark(curves.blocks(curve.values, 40)),
        )
    ]
    if np.isfinite(validation):
        evidence.append(Evidence(f"validation loss {figure(validation)}, the same", LOSS_VALIDATION.name, validation))
    if missed is not None:
        text = f"what it gets wrong is no noise: residuals of nearest neighbours agree by {missed.mean:.2f} (noise: 0)"
        evidence.append(Evidence(text, RESIDUAL_AGREEMENT.name, missed.mean, MISSED))
    if left >= LEARNED and missed is None:
        return RULE.finding(
            severity=Severity.INFO,
            confidence=0.5,
            title=f"Nothing was learned: the loss stays at {left:.0%} of a constant guess",
            summary="No cause was found for it in the record.",
            fix=Fix(
                "Overfit one batch. If that fails, look at what stands between inputs and loss: axes in another order "
                "than the layers expect (batch_first), a reshape that mixes samples, targets of other samples.",
            ),
            evidence=evidence,
            first_step=int(curve.steps[0]),
            last_step=int(curve.steps[-1]),
            symptoms=("stuck-at-chance", "both-high-and-equal"),
        )
    return RULE.finding(
        severity=Severity.WARNING if falling or missed is not None else Severity.INFO,
        confidence=0.75 if falling or missed is not None else 0.5,
        title=f"The model underfits: the loss ends at {left:.0%} of a constant guess",
        summary=(
            "The loss was still falling at full pace when training ended: the run is too short."
            if falling
            else "Training and validation are poor alike, and alike samples err alike: there is structure in the data "
            "that this model cannot express."
            if missed is not None
            else "Training and validation are poor alike. Either the model cannot express the task, or there is little "
            "in the data to learn; a model several times as large tells which."
        ),
        fix=Fix("Train several times as long.", "epochs = 5 * epochs")
        if falling
        else Fix("Add a hidden layer with a nonlinearity, or widen the model, until the training loss stops improving.")
        if missed is not None
        else Fix("Overfit one batch; then try a model several times as large. If neither helps, look at the data."),
        evidence=evidence,
        first_step=int(curve.steps[0]),
        last_step=int(curve.steps[-1]),
        symptoms=("both-high-and-equal",),
    )
