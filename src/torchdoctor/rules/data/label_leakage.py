"""A single input feature gives the target away.

## What it means
One feature (a column, a pixel, a token's position) tells the target all by itself, while the others tell little. The
model learns to read it off, training and validation look excellent at once, and in use, where that feature is not
known yet or means something else, nothing of it is left.

## Why it happens
- The target, or something computed from it, was left among the inputs: `df.values` instead of `df.drop(columns=[y])`.
- A column that is filled in only after the outcome is known (a discharge code, a refund date, an account status).
- A target encoding that was fitted on the whole table.
- Identifiers, file names or stamps that go with the class (one scanner for each diagnosis, a mark in the picture).

## How it is detected
Over the training batches that are looked at, for each element of the input: the share of its variance that lies between
the classes, or its squared correlation with a regression target (targets of a binary cross-entropy are classes, where
the two are the same). A leak has 0.98 or more (0.995 for regression) while the next feature has less than 0.85 and half
of all features less than 0.5. For classes 0.9 will do where it stands out: no other feature has half as much, and half
of them have less than a quarter; a leak with noise on it is one still. Real features seldom reach that: the best column
of the iris data has 0.94, and the next is nearly as good. Where the loss stays above half of a constant guess the model
does not use it, and something else ails the run: it is an info. So it is where one position of a sequence, or one
column of a regression, decides and no other tells 5 %: a task that was made so; unless the tokens at the other
positions surely go with the class as well (chi-squared of class against what a sample holds, without the tokens that
stand where the leak is), since then they are what the task is about. Of tokens it is also the share of the way from
guessing to certainty that the token at a position goes, whatever its number.

## How to fix it
Look at the feature that is named. If it would not be known at the time of prediction, remove it. Fit encoders on the
training part only.

## Known false alarms
Tasks where one feature truly decides (a thermostat's own threshold). Where all other features tell nothing at all, as
in toy tasks that ask for one position of a sequence, it is an info. Inputs of one or two features and targets that
have the shape of the input are not judged. Forecasts from lagged values have many high
columns and are not reported; where one column correlates with a regression target and yet the loss was not near zero
early, as it is for a copy of the target, it is an info.

## References
Kaufman et al., "Leakage in Data Mining: Formulation, Detection, and Avoidance" (2012). Geirhos et al., "Shortcut
Learning in Deep Neural Networks" (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from torchdoctor.distributions.gaps import nanmin
from torchdoctor.facts import TRAIN, InputsFact, LeakageFact
from torchdoctor.findings import Evidence, Finding, Fix, RuledOut, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, LOSS_TRAIN, LOSS_VALIDATION

RULE = Rule(
    code="D012",
    name="label-leakage",
    family="data",
    needs=(LeakageFact,),
    explains=(
        *("overfitting", "validation-better-than-training", "abnormal-distribution", "miscalibrated"),
        *("inputs-and-labels-unrelated", "train-validation-mismatch"),
    ),
)

CLASSES_TOLD = 0.98
"""Classes fourteen standard deviations apart along one feature."""
CLASSES_TOLD_APART, NEXT_APART, MIDDLE_APART = 0.9, 0.45, 0.25
"""Two classes six standard deviations apart along one feature, while the others are weak: below half of that, and a
quarter in the middle. Columns of real tables that come near 0.9 (iris) have neighbours as good as they are."""
REGRESSION_TOLD = 0.995
NEXT = 0.85
"""The best of the others must tell less: where several tell the target, the task is easy rather than leaked."""
MIDDLE = 0.5
"""Half of all features must tell less than this; pixels of digits have 0.3 in the middle."""
NOTHING = 0.05
"""Below it the best of the others tells nothing: one feature decides by design, or all else is noise."""
TOLD_BESIDE = 5.0
"""Standard deviations by which the other positions of a sequence tell the class: then they are what the task is about,
and the one that decides is not."""
READ_OFF, EARLY = 0.05, 0.25
"""Loss over that of a constant guess (or of the start), and the share of the run by which a copy of a regression target
is read off. Chosen; a leaked column leaves 0.005 of the variance at most, so the loss comes near zero at once."""
USED = 0.5
"""Loss at the end over a constant guess, for a model that uses what gives the classes away. Chosen."""
LEAST_SAMPLES = 100
LEAST_FEATURES = 4
FEW = 0.35
"""Share of features that may leak together: a one-hot target among the inputs has as many columns as classes."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    fact = run.last_fact(LeakageFact)
    if fact is None or fact.samples < LEAST_SAMPLES or not fact.told or not all(map(math.isfinite, fact.told)):
        return
    width = int(np.prod(fact.shape)) if fact.shape else 0
    classes = fact.task == "classes" or _is_binary(run)
    limit = _limit(fact) if classes else REGRESSION_TOLD
    leaks = [(i, told) for i, told in zip(fact.features, fact.told, strict=True) if told >= limit]
    if not leaks:
        if fact.told[0] >= NEXT_APART:
            return
        text = f"no single input feature tells the target: the best explains {fact.told[0]:.0%}"
        yield RuledOut(RULE.name, text, LeakageFact.kind, fact.told[0])
        return
    others = fact.told[len(leaks) :]
    easy = fact.median > MIDDLE or (others and others[0] > NEXT)
    if width < LEAST_FEATURES or easy or len(leaks) > max(1, FEW * width):
        return
    certain = is_used(run) if classes else is_read_off(run)
    grave = certain and not stands_alone(run, fact, others, classes)
    yield _finding(run, fact, leaks, limit, Severity.WARNING if grave else Severity.INFO)


def _is_binary(run: Run) -> bool:
    """Targets written as numbers that a binary cross-entropy takes: classes 0 and 1."""
    calls = baseline.loss_calls(run)
    return bool(calls) and all(c.function in baseline.BINARY for c in calls)


def _limit(fact: LeakageFact) -> float:
    """What a feature must tell of the classes: less where no other comes near it."""
    others = [told for told in fact.told if told < CLASSES_TOLD_APART]
    apart = (not others or others[0] < NEXT_APART) and fact.median < MIDDLE_APART
    return CLASSES_TOLD_APART if apart else CLASSES_TOLD


def is_used(run: Run) -> bool:
    """A model that reads the target off does well; one that is stuck suffers from something else."""
    loss, guess = loss_curve(run), baseline.chance(run)
    return loss is None or guess is None or loss.end <= USED * guess


def is_read_off(run: Run) -> bool:
    """The loss came near zero early, or is not known."""
    loss, guess = loss_curve(run), baseline.chance(run)
    if loss is None:
        return True
    early = loss.curve.values[loss.curve.steps <= EARLY * run.steps]
    level = guess if guess is not None else loss.begin
    return not len(early) or float(curves.smooth(early, 5).min()) <= READ_OFF * level


def stands_alone(run: Run, fact: LeakageFact, others: list[float], classes: bool) -> bool:
    """One position of a sequence decides and the rest tells nothing: a task that was made so (remember the first
    symbol). Or a regression on one column. Columns of a table seldom tell classes so well by design, and the others may
    tell something together."""
    if (others and others[0] >= NOTHING) or (fact.beside or 0.0) >= TOLD_BESIDE:
        return False
    given = next((f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input"), None)
    tokens = given is not None and "int" in given.dtype
    return len(fact.shape) == 2 or tokens or not classes


def name_of(index: int, shape: list[int]) -> str:
    """An element of a sample, as one would index it."""
    if len(shape) == 1:
        return f"feature {index}"
    return f"element {tuple(int(i) for i in np.unravel_index(index, shape))}"


def _finding(run: Run, fact: LeakageFact, leaks: list[tuple[int, float]], limit: float, severity: Severity) -> Finding:
    name, told = name_of(leaks[0][0], fact.shape), leaks[0][1]
    what = (
        "of its variance lies between the classes" if fact.task == "classes" else "squared correlation with the target"
    )
    share = f"{told:.1%}" if fact.task == "classes" else f"{told:.4f}"
    evidence = [
        Evidence(
            f"{name}: {share} {what}, over {fact.samples} samples; the middle feature has {fact.median:.1%}",
            LeakageFact.kind,
            told,
            limit,
        )
    ]
    accuracy, held = run.scalar(ACCURACY_VALIDATION).values, run.scalar(LOSS_VALIDATION)
    if len(accuracy):
        text = f"validation accuracy reaches {curves.greatest(accuracy):.1%}"
        evidence.append(Evidence(text, ACCURACY_VALIDATION.name, curves.greatest(accuracy)))
    elif len(held):
        low = float(nanmin(held.values))
        evidence.append(Evidence(f"validation loss falls to {curves.figure(low)}", LOSS_VALIDATION.name, low))
    loss = run.scalar(LOSS_TRAIN)
    if len(loss):
        evidence.append(Evidence("training loss", LOSS_TRAIN.name, spark=curves.spark(loss.values)))
    more = f" (and {len(leaks) - 1} more)" if len(leaks) > 1 else ""
    index = leaks[0][0]
    return RULE.finding(
        severity=severity,
        confidence=0.6 if severity is Severity.INFO else 0.92 if told > 0.999 else 0.8,
        title=f"{name.capitalize()} of the input gives the target away{more}",
        summary=f"{name.capitalize()} alone tells the target, while the others tell far less: it is the target, made "
        "from it, or known only after it. The model reads it off instead of learning the task.",
        where=call_places(run, "backward"),
        first_step=0,
        evidence=evidence,
        fix=Fix(
            "Remove the feature if it would not be known at the time of prediction.",
            f"X[:, {[i for i, _ in leaks]}] = 0  # or remove the columns, and narrow the first layer"
            if len(fact.shape) == 1
            else f"x.flatten(1)[:, {index}]  # look at it beside y",
        ),
        symptoms=("too-good-too-soon", "high-accuracy-fails-in-use"),
    )
