"""The weights grow without bound.

## What it means
The norm of the weight matrices has grown many times over and goes on growing. The loss rewards size itself, or nothing
holds it: outputs become extreme, gradients of normalised layers fade (their effective rate falls with the square of the
weight's size), rounding gets coarse, and sooner or later something overflows.

## Why it happens
- A loss without a floor: a difference of scores without a margin, a negated distance, a penalty with the wrong sign.
- A weight decay by hand that is added where it should be taken away.
- Layers in front of a normalisation: their scale does nothing, so every step lengthens them, and no decay acts.
- A high rate with an optimizer whose steps have a fixed length, for a long time.

## How it is detected
The norm of the typical weight matrix at the end is eight times what it was at the first look and more (matrices that
started near zero are left out), and it is still growing: by a seventh and more over the last third of the run. With
several models each is judged by itself as well. Four times are enough where the loss falls below zero ever faster, in
the last third of the run more than in the second: then size itself is rewarded. Where the loss falls below every bound,
that is told too.

## How to fix it
Look at the loss first: does it have a floor, and do its penalties have the right sign? Then add weight decay (AdamW,
0.01 to 0.1), or normalise what the loss compares.

## Known false alarms
Models that start from deliberately tiny weights grow many times over in their first steps and then stop: growth that
has stopped is not reported. A single last layer that has to reach large targets does not count as the typical one.

## References
van Laarhoven, "L2 Regularization versus Batch and Weight Normalization" (2017). Hoffer et al., "Norm matters" (2018).
Soudry et al., "The Implicit Bias of Gradient Descent on Separable Data" (2018).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import ModelFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import curves, movement
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import LOSS_TRAIN, WEIGHT_DECAY, WEIGHT_L2

RULE = Rule(
    code="H009",
    name="weight-norm-growth",
    family="hyperparameters",
    needs=(WEIGHT_L2,),
    explains=(
        "nonfinite-parameters",
        "saturated-activations",
        "dead-relu",
        "exploding-gradients",
        "abnormal-distribution",
        "learning-rate-too-high",
        "overfitting",
        "miscalibrated",
    ),
)

GROWN = 8.0
"""Norm at the end over the first look. Trainings that go well end between 1 and 4 times."""
GROWN_FOR_REWARD = 4.0
"""The same where the loss falls ever faster below zero, which is proof enough that size itself is rewarded."""
FASTER = 1.2
"""Fall from the second to the last third of the run over that from the first to the second. Losses with a floor slow
down: a likelihood that turns negative flattens out."""
STILL_GROWING = 1 / 7
"""Growth over the last third of the run, as a share of the norm. Growth with the root of time gives a fifth."""
LEAST_STEPS, LEAST_LOOKS = 60, 6


def detect(run: Run) -> Iterator[Finding]:
    trace = matrices(run)
    if trace is None or run.steps < LEAST_STEPS or len(trace) < LEAST_LOOKS:
        return
    needed = GROWN_FOR_REWARD if rewards_size(run) else GROWN
    for part in (trace, *_by_model(run, trace)):
        growth_L = part.values[-1] / part.values[0]
        typical = float(np.sort(growth_L)[(len(growth_L) - 1) // 2])
        late = growth_late(part)
        if typical >= needed and late >= STILL_GROWING:
            yield _finding(run, part, growth_L, typical, late)
            return


def _by_model(run: Run, trace: Trace) -> list[Trace]:
    """The matrices of each of several models: a critic may run away from a generator that stays."""
    models = sorted({f.name for f in run.facts(ModelFact) if f.name}, key=len, reverse=True)
    names: dict[str, list[str]] = {}
    for column in trace.columns:
        owner = next((m for m in models if column.startswith(f"{m}.")), "")
        names.setdefault(owner, []).append(column)
    return [trace.select(columns) for columns in names.values() if len(columns) >= 2] if len(names) > 1 else []


def rewards_size(run: Run) -> bool:
    """One loss that falls below zero and ever faster: it has no floor, so the size of the weights is what pays."""
    keys = run.keys(LOSS_TRAIN)
    curve = curves.read(run.scalar(LOSS_TRAIN, keys[0]), closely=False) if len(keys) == 1 else None
    if curve is None or len(curve) < LEAST_STEPS or curve.broke_at is not None:
        return False
    thirds = [float(np.median(part)) for part in np.array_split(curve.values, 3)]
    return thirds[2] < 0 and thirds[1] - thirds[2] >= FASTER * (thirds[0] - thirds[1]) > 0


def matrices(run: Run) -> Trace | None:
    """Norms of the weight matrices that have a size to begin with, at looks where all are finite."""
    trace = run.matrix(WEIGHT_L2)
    names = [c for c in trace.columns if movement.is_matrix(run.parameters.get(c))]
    names = [c for c in names if not movement.starts_at_zero(run, c)]
    chosen = trace.select(names)
    if not chosen.columns or not len(chosen):
        return None
    keep = np.isfinite(chosen.values).all(axis=1) & (chosen.values > 0).all(axis=1)
    return Trace.raw(chosen.steps[keep], chosen.values[keep].astype(np.float64), chosen.columns) if keep.any() else None


def growth_late(trace: Trace) -> float:
    """How much the typical matrix grew over the last third, as a share of its final norm."""
    two_thirds = int(trace.steps[0] + 2 * (trace.steps[-1] - trace.steps[0]) / 3)
    at: Floats = np.array([np.interp(two_thirds, trace.steps, column) for column in trace.values.T])
    return float(np.median(1 - at / trace.values[-1]))


def _finding(run: Run, trace: Trace, growth_L: Floats, typical: float, late: float) -> Finding:
    worst = int(np.argmax(growth_L))
    decays = [float(np.nanmax(run.scalar(WEIGHT_DECAY, k).values, initial=0.0)) for k in run.keys(WEIGHT_DECAY)]
    curve = curves.read(run.scalar(LOSS_TRAIN), closely=False)
    endless = len(curve) > 10 and curves.level(curve.values) < min(0.0, 3 * curves.level(curve.values, end=False))
    evidence = [
        Evidence(
            f"the typical weight matrix is {typical:,.3g} times its first size; {trace.columns[worst]} grew "
            f"from {figure(float(trace.values[0, worst]))} to {figure(float(trace.values[-1, worst]))}",
            WEIGHT_L2.name,
            typical,
            GROWN,
            curves.spark(trace.values[:, worst]),
        ),
        Evidence(f"{late:.0%} of that size came in the last third of the run", WEIGHT_L2.name, late, STILL_GROWING),
    ]
    if endless:
        end = curves.level(curve.values)
        evidence.append(Evidence(f"the loss falls without a floor, to {figure(end)}", LOSS_TRAIN.name, end))
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if endless or typical > 3 * GROWN else 0.8,
        title=f"The weights have grown {typical:,.3g} times and go on growing",
        summary=(
            "Nothing holds the size of the weights. "
            + (
                "The loss itself rewards it: it has no floor."
                if endless
                else f"Weight decay is {figure(max(decays, default=0.0))}; a term of the loss may reward large weights."
            )
        ),
        fix=Fix(
            "Give the loss a floor (a margin, normalised outputs), check the sign of its penalties; then add decay.",
            movement.with_setting(run, weight_decay=0.05),
        ),
        evidence=evidence,
        where=[Place(parameter=trace.columns[worst])],
        first_step=int(trace.steps[np.argmax(np.median(trace.values / trace.values[0], axis=1) > GROWN / 2)]),
        last_step=int(trace.steps[-1]),
        symptoms=("diverging",),
    )
