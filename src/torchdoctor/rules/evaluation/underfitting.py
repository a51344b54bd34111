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
it, and no other diagnosis stands above this one (it is what is left to say). It is a warning where the loss is still
falling beyond doubt at the end of a finished run, at half the pace of the whole and more: then longer training pays.
Otherwise noise cannot be told from a model that is too small, and it is an info.

## How to fix it
In this order: train longer, if the loss still falls; overfit one batch, to see whether the model can learn at all;
raise the rate; take a larger model. If it can learn a batch by heart and still not the whole, look for signal in the
data.

## Known false alarms
Tasks with little signal (finance, clicks) end close to a constant guess at their best. Quick tries of a hundred steps
are too short by intention and are not judged.

## References
Goodfellow, Bengio and Courville, "Deep Learning" (2016), section 5.2. Karpathy, "A Recipe for Training Neural Networks"
(2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

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
STILL_AT_PACE = 0.5
"""Slope of the last third over that of the whole run, for a run that ended too soon."""
SURE = 4.0
LEAST_STEPS = 150
"""Fewer are a try, not a training."""
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
    if left <= POOR:
        return
    validation = curves.level(curves.read(run.scalar(LOSS_VALIDATION), closely=False).values)
    if np.isfinite(validation) and abs(validation - end) > EQUAL * end:
        return
    yield _finding(curve, end, left, validation, is_falling(curve) and left < LEARNED)


def is_falling(curve: Curve) -> bool:
    """Beyond doubt in the last third, at no less than half the pace of the whole run."""
    whole, last = curves.trend(curve.values), curves.trend(curve.values[-(len(curve) // 3) :])
    return last.sigmas < -SURE and whole.change < 0 and 3 * last.change < STILL_AT_PACE * whole.change


def _finding(curve: Curve, end: float, left: float, validation: float, falling: bool) -> Finding:
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
    return RULE.finding(
        severity=Severity.WARNING if falling else Severity.INFO,
        confidence=0.75 if falling else 0.5,
        title=f"The model underfits: the loss ends at {left:.0%} of a constant guess",
        summary=(
            "The loss was still falling at full pace when training ended: the run is too short."
            if falling
            else "Training and validation are poor alike. Either the model cannot express the task, or there is little "
            "in the data to learn; a model several times as large tells which."
        ),
        fix=Fix("Train several times as long.", "epochs = 5 * epochs")
        if falling
        else Fix("Overfit one batch; then try a model several times as large. If neither helps, look at the data."),
        evidence=evidence,
        first_step=int(curve.steps[0]),
        last_step=int(curve.steps[-1]),
        symptoms=("both-high-and-equal",),
    )
