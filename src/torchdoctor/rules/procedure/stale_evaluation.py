"""Validation repeats the very same number while the model trains.

## What it means
Two evaluations of a model that has changed in between never give the same loss to the last bit. Where they do, what is
evaluated is not the model that trains, or nothing is evaluated at all: the number says nothing about the training, and
early stopping, schedules and the choice of the best checkpoint that rest on it are blind.

## Why it happens
- A copy of the model (`copy.deepcopy`, an average of weights, a compiled or exported one) was made once, and is the
  one that is evaluated.
- The evaluation loads a checkpoint that is no longer written, or from the wrong path.
- The result of the first evaluation is kept and given back (a cache, outputs computed outside the loop).

## How it is detected
The loss of each validation is compared with the one before it, exactly. At least three in a row must be equal, most of
all validations must belong to such a row, and the parameters must have changed in between: their updates, added up,
come to 1e-4 of their size, which no loss survives unchanged in 24 bits of precision. Where hardly a gradient is left
the outputs are saturated and stand still by themselves. What is zero, or a share of at most 256 samples, may stand
still by chance and does not count; nor do equal values of different folds.

## How to fix it
Evaluate the object that the optimizer trains, or bring the copy up to date right before each evaluation
(`copy.load_state_dict(model.state_dict())`).

## Known false alarms
A fixed reference model (a teacher, a baseline) that is scored beside the trained one: as long as another validation
loss moves, nothing is said. A metric of few samples that stands still is no evidence and is not read; the loss is.

## References
torchdoctor catalogue, T016. PyTorch documentation, "Saving and Loading Models".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from torchdoctor.distributions.gaps import nanmax, nanmean
from torchdoctor.facts import TRAIN, VALIDATION, ModesFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.loss_curve import loss_keys
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.stages import all_stages
from torchdoctor.run import Run, Trace
from torchdoctor.signals import (
    ACCURACY_VALIDATION,
    GRADIENT_L2,
    LEARNING_RATE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    UPDATE_RATIO,
)

RULE = Rule(
    code="T016",
    name="stale-evaluation",
    family="procedure",
    needs=(LOSS_VALIDATION,),
    explains=(
        "overfitting",
        "underfitting",
        "miscalibrated",
        "majority-class-collapse",
        "noisy-validation",
        "metric-disagrees-with-loss",
        "metric-implementation-wrong",
        "train-validation-mismatch",
        "inputs-and-labels-unrelated",
        "weak-slice",
        "learning-rate-decayed-too-early",
    ),
)

FEW_SAMPLES, ROUNDED = 256, 1e-7
"""A number drawn at random is so near to a share of so few samples less than once in a hundred times."""
REPEATS = 3
"""Equal losses in a row; with the parameters moved as below each equality by chance has odds of about one in 1,000."""
SHARE = 0.5
"""Of all validations: a stale stretch at a phase of its own (a last evaluation repeated) is not the run."""
MOVED = 1e-4
"""Updates added up, relative to the weights: 1,000 times the precision of a float32 loss."""
SATURATED = 1e-6
"""Largest gradient of a step over the largest of the run: what a float32 sum of the two would not show."""


@dataclass(frozen=True)
class Repeats:
    """The longest row of equal validation losses of one loader."""

    key: str
    value: float
    count: int
    of: int
    first: int
    last: int


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    traces = {key: run.scalar(LOSS_VALIDATION, key) for key in run.keys(LOSS_VALIDATION)}
    rows = [_longest_row(key, trace) for key, trace in traces.items()]
    stale = [r for r in rows if r is not None and r.count >= REPEATS and r.count >= SHARE * r.of]
    if stale and len(stale) == len([r for r in rows if r is not None]):
        worst = max(stale, key=lambda r: r.count)
        moved = _moved(run, worst.first, worst.last)
        within = [a <= worst.first and worst.last <= b for a, b in all_stages(run)] or [True]
        told = moved is not None and moved >= MOVED and any(within) and not is_a_share(worst.value)
        if told and not _is_saturated(run, worst.first, worst.last):
            yield _finding(run, worst, moved)
    elif rows and all(r is not None and r.count == 1 and r.of >= REPEATS for r in rows):
        count = sum(r.of for r in rows if r is not None)
        yield RuledOut(RULE.name, f"all {count} validation losses differ from the one before", LOSS_VALIDATION.name)


def is_a_share(value: float) -> bool:
    """Whether it is zero, one, or so many of a few samples: counts of errors stand still by chance, losses do not."""
    samples = np.arange(1, FEW_SAMPLES + 1)
    counts = abs(value) * samples
    return abs(value) <= 1 and bool((np.abs(counts - np.round(counts)) <= ROUNDED * samples).any())


def _longest_row(key: str, trace: Trace) -> Repeats | None:
    same = np.isfinite(trace.values) & (trace.low == trace.high)
    steps, values = trace.steps[same], trace.values[same]
    if not len(values):
        return None
    breaks = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *breaks.tolist(), len(values)]
    start, end = max(pairwise(bounds), key=lambda pair: pair[1] - pair[0])
    count, of = (end - start) * trace.merged, len(trace) * trace.merged
    return Repeats(key, float(values[start]), count, of, int(steps[start]), int(steps[end - 1]))


def _moved(run: Run, first: int, last: int) -> float | None:
    """By how much the parameters changed between two steps, relative to their size; None where it is not known."""
    wiring = run.last_fact(WiringFact)
    if wiring is not None and wiring.unchanged and len(wiring.unchanged) >= wiring.total - len(wiring.frozen):
        return 0.0
    rates = [run.scalar(LEARNING_RATE, key).between(first, last) for key in run.keys(LEARNING_RATE)]
    if rates and not any(np.any(r.high > 0) for r in rates):
        return 0.0
    ratios = run.matrix(UPDATE_RATIO).between(first, last)
    if len(ratios) and np.isfinite(ratios.values).any():
        largest_S = nanmax(np.where(np.isfinite(ratios.values), ratios.values, np.nan), axis=1)
        return curves.median(largest_S) * (last - first)
    losses = [run.scalar(LOSS_TRAIN, key).between(first, last).values for key in loss_keys(run)]
    spread = [float(np.ptp(v[np.isfinite(v)])) / max(abs(float(nanmean(v))), 1e-12) for v in losses if len(v) > 1]
    return max(spread, default=None) if wiring is not None else None


def _is_saturated(run: Run, first: int, last: int) -> bool:
    """Whether hardly a gradient is left: outputs stand still then, whatever momentum and decay do to the weights."""
    whole = run.matrix(GRADIENT_L2)
    if not len(whole.between(first, last)):
        return False
    of_run, of_row = (
        np.where(np.isfinite(trace.values), trace.values, 0.0).max(axis=1, initial=0.0)
        for trace in (whole, whole.between(first, last))
    )
    return bool(np.median(of_row) <= SATURATED * of_run.max())


def _finding(run: Run, row: Repeats, moved: float) -> Finding:
    validated = next((f for f in reversed(run.facts(ModesFact)) if f.phase == VALIDATION), None)
    trained = next((f for f in reversed(run.facts(ModesFact)) if f.phase == TRAIN), None)
    model = trained.model if trained and trained.model.isidentifier() and trained.model.islower() else "model"
    evidence = [
        Evidence(
            f"{row.count} of {row.of} validations in a row gave exactly {row.value:.7g}",
            LOSS_VALIDATION.name,
            row.value,
        ),
        Evidence(
            f"meanwhile the updates moved the weights by {moved:.2g} of their size",
            UPDATE_RATIO.name,
            moved,
            MOVED,
        ),
    ]
    accuracy = run.scalar(ACCURACY_VALIDATION, row.key).between(row.first, row.last)
    if len(accuracy) > 1 and np.ptp(accuracy.values) == 0:
        text = f"validation accuracy stands at {accuracy.values[0]:.3g} as well"
        evidence.append(Evidence(text, ACCURACY_VALIDATION.name, float(accuracy.values[0])))
    if validated and trained and validated.model != trained.model:
        text = f"the passes without gradients go through another module ({validated.model}) than the trained one"
        evidence.append(Evidence(f"{text} ({trained.model})"))
    place = Place(file=validated.file, line=validated.line) if validated else Place()
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.97,
        proof=Proof.STRUCTURE,
        title=f"validation gives exactly {row.value:.5g} every time while the model trains",
        summary="What is validated is not the model that trains: no change of its weights shows in the loss, not even "
        "in the last bit. A copy made once, a checkpoint no longer written or a kept result is evaluated instead.",
        where=known(place),
        first_step=row.first,
        last_step=row.last,
        evidence=evidence,
        fix=Fix(
            "Evaluate the object that the optimizer trains; where a copy or a checkpoint is scored, bring it up to "
            "date right before.",
            f"scored.load_state_dict({model}.state_dict())  # scored: the module that validation calls",
        ),
        symptoms=("validation-flat", "train-down-validation-flat"),
    )
