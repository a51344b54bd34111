"""The labels do not belong to the inputs: what is learned by heart says nothing about other samples.

## What it means
The pairs of input and label are broken. A large model learns them by heart, a small one stays where guessing is; in
both cases validation is no better than the best constant guess, for classes and numbers alike.

## Why it happens
- Inputs and labels were shuffled, filtered or sorted apart from each other.
- A join or a shift by one row: each label belongs to the sample before it.
- Files listed in different orders for images and annotations.
- An augmentation that changes what the label means (a flip where left and right are the classes).

## How it is detected
Validation must be at chance in every one of the last passes: accuracy not above the share of the largest class and
mean recall not above one over the number of classes, by three standard errors (of under 100 samples: the mean of the
later passes by one); or for numbers an R2 of at most 0.02.
Beside it, one of two courses of training. By heart: the training loss fell well below chance, or less far but surely
while the validation loss never got below guessing (for numbers: R2 ends below zero), although during the first walk
through the data, when every sample was new, it was at chance. Nothing: the training loss never left the
level of guessing although the updates were of a usual size, every layer got a gradient, no layer is dead or saturated,
and the outputs did change with the inputs; nor do alike inputs have alike residuals, which says that they are related.

## How to fix it
Print a few pairs where they reach the model and look at them. Shuffle with one order for both, join by a key and not by
position, sort file lists on both sides. Training a model on labels shuffled on purpose should look the same as this
run: that is the proof.

## Known false alarms
A data set without any signal (prices of tomorrow) looks the same, and so does a very small one of many dimensions. A
plateau that lasts the whole run (parity) shows the second course; it is reported with little confidence.

## References
Zhang et al., "Understanding deep learning requires rethinking generalization" (2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.gaps import nanmedian
from torchdoctor.facts import TRAIN, VALIDATION, LoaderFact, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, movement, outcomes, structure
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, ACTIVATION, GRADIENT_L2, LOSS_TRAIN, LOSS_VALIDATION, Signal

RULE = Rule(
    code="D008",
    name="inputs-and-labels-unrelated",
    family="data",
    needs=(LOSS_TRAIN, SamplesFact),
    explains=(
        "overfitting",
        "miscalibrated",
        "underfitting",
        "majority-class-collapse",
        "noisy-labels",
        "capacity-too-low",
        "plateau-or-saddle",
        "learning-rate-too-low",
        "metric-disagrees-with-loss",
        "weak-slice",
        "noisy-validation",
    ),
)

NO_SIGNAL = 0.02
"""R2 of predictions that know nothing, with the noise of a small set."""
LEARNED = 0.7
"""Training loss over chance that only memory can have brought where validation is at chance."""
AT_CHANCE, CLEARLY_BELOW, FIRST_SIGMAS = 0.95, 0.9, 2.0
"""Median loss of the first walk through the data over chance: every sample was new, so nothing else was known.
Within two standard errors of the mean it may lie lower, but not by a tenth: batch losses of numbers are skewed."""
STAYED = 0.97
"""Training loss over chance that never left the level of guessing."""
SURELY = 4.0
"""Standard errors by which the training loss must fall where it is not far below guessing yet."""
NEVER_BELOW = 0.985
"""Least validation loss over guessing: what is learned by heart only ever adds to it."""
PARTED = 0.02
"""Validation loss above training loss at the end, over guessing."""
LEAST_STEPS = 100
LEAST_PASSES = 3
LEAST_SAMPLES = 30
SURE_SAMPLES = 100
"""With fewer samples three standard errors hide much: then the mean over the later passes must not lie above guessing
by more than one, and numbers are not judged at all."""
USUAL_UPDATES = (1e-4, 0.2)
"""Relative change of the weights in one step: neither standing still nor ever thrown about."""
FADED = 1e-3
"""Smallest gradient norm of a weight matrix over the largest, below which it is the gradient that does not arrive."""
BROKEN = 0.5
"""Share of dead or saturated units of a layer that would explain it."""
DEPENDS = 0.01
"""Variance of the predictions over that of the targets, or share of answers other than the favourite."""


@dataclass(frozen=True)
class Chance:
    """Validation at chance: what it scores and what guessing scores."""

    text: str
    value: float
    guess: float
    depends: bool
    """the answers do change with the inputs"""
    numbers: bool = False


def detect(run: Run) -> Iterator[Finding]:
    losses = curves.read(run.scalar(LOSS_TRAIN), closely=False)
    guess = _guess(run)
    if len(losses) < LEAST_STEPS or guess is None or not guess > 0:
        return
    end = curves.level(losses.values)
    chance = classes_at_chance(run, end >= STAYED * guess) or numbers_at_chance(run)
    if chance is None:
        return
    if chance.depends and (end <= LEARNED * guess or _apart(run, losses, guess, end, chance)):
        first, error = _first_walk(run, losses)
        if first < max(CLEARLY_BELOW, AT_CHANCE - FIRST_SIGMAS * error / guess) * guess:
            return
        yield _finding(run, chance, guess, end, first, losses)
    elif chance.depends and STAYED * guess <= end and _moves(run) and not _are_related(run):
        yield _finding(run, chance, guess, end, None, losses)


def _are_related(run: Run) -> bool:
    """Alike inputs have alike labels: a model that learns none of it is of the wrong kind, not given wrong pairs."""
    found = structure.agreement(run)
    return found is not None and found.is_structure


def _apart(run: Run, losses: curves.Curve, guess: float, end: float, chance: Chance) -> bool:
    """Training falls surely, bit by bit, while validation never gets below guessing: learning by heart has begun.

    For numbers validation's R2 has said so already, by its own variance; that of a few training batches is rough.
    """
    later = losses.values[len(losses) // 4 :]
    trend = curves.trend(later)
    validation = run.scalar(LOSS_VALIDATION).values
    validation = validation[np.isfinite(validation)]
    if len(validation) < LEAST_PASSES or trend.sigmas > -SURELY or end >= guess:
        return False
    if float(validation[-1]) - end <= PARTED * guess:
        return False
    if chance.numbers:
        return chance.value < 0
    return float(validation.min()) >= NEVER_BELOW * guess and float(validation[-1]) >= guess


def _guess(run: Run) -> float | None:
    """Loss of the best constant guess: entropy of the labels, or variance of the targets."""
    counts = outcomes.training(run, 1000)
    guess = baseline.chance(run)
    if counts is None or guess is None or outcomes.is_weighted(run):
        return guess
    shares = counts.shares[counts.shares > 0]
    return min(guess, float(-(shares * np.log(shares)).sum()))


def classes_at_chance(run: Run, stuck: bool) -> Chance | None:
    """Validation at chance. A model that never left chance in training may lean to either side by luck: then most of
    the passes decide."""
    seen = outcomes.passes(run)
    if not outcomes.is_by_sample(run) or len(seen) < LEAST_PASSES or seen[-1].samples < LEAST_SAMPLES:
        return None
    later = seen[len(seen) // 2 :]
    beats = [outcomes.beats_chance(o) for o in seen]
    if stuck and (sum(beats) > 0.5 * len(seen) or beats[-1]):
        return None
    if not stuck and (any(beats[len(seen) // 2 :]) or sum(beats) > 0.2 * len(seen)):
        return None
    last = later[-1]
    if last.samples < SURE_SAMPLES and _leans_up(later):
        return None
    depends = float(np.median([o.favourite[1] for o in later])) < 1 - DEPENDS and last.present > 1
    text = f"validation accuracy {last.accuracy:.1%}, always naming one class scores {last.majority:.1%}"
    return Chance(text, last.accuracy, last.majority, depends)


def _leans_up(later: list[outcomes.Outcome]) -> bool:
    """Accuracy of the passes together above guessing by more than one standard error of a single pass."""
    last = later[-1]
    guess = max(last.majority, 1 / last.present)
    accuracy = float(np.mean([o.accuracy for o in later]))
    return accuracy > guess + float(np.sqrt(guess * (1 - guess) / last.samples))


def numbers_at_chance(run: Run) -> Chance | None:
    seen = [f for _, f in outcomes.looks(run, VALIDATION, "regression") if "r2" in f.metrics]
    if len(seen) < LEAST_PASSES or seen[-1].samples < SURE_SAMPLES:
        return None
    if max(f.metrics["r2"] for f in seen) > NO_SIGNAL:
        return None
    last = seen[-1]
    depends = last.metrics.get("prediction_variance", 0.0) > DEPENDS * last.metrics["variance"]
    text = f"validation error is {figure(1 - last.metrics['r2'])} times the variance of its targets (R2 at most 0)"
    return Chance(text, last.metrics["r2"], 0.0, depends, numbers=True)


def _first_walk(run: Run, losses: curves.Curve) -> tuple[float, float]:
    """Median training loss while every sample came for the first time, of ten steps where the length of a walk is
    unknown; and its standard error."""
    loader = next((f for f in reversed(run.facts(LoaderFact)) if f.phase == TRAIN and f.batches), None)
    first = losses.values[losses.steps < loader.batches] if loader is not None and loader.batches else losses.values[:0]
    if len(first) < 3:
        first = losses.values[:10]
    return float(np.median(first)), float(first.std() / np.sqrt(len(first)))


def _moves(run: Run) -> bool:
    """The updates are of a usual size throughout, and no layer is cut off: then the network is not what fails."""
    moved = movement.read(run)
    if moved is None:
        return False
    middle = moved.middle_S[np.isfinite(moved.middle_S)]
    if not len(middle) or not USUAL_UPDATES[0] <= float(np.median(middle)) <= float(middle.max()) <= USUAL_UPDATES[1]:
        return False
    return _reaches_all(run) and all(_largest(run, ACTIVATION[name]) < BROKEN for name in ("dead", "saturated"))


def _reaches_all(run: Run) -> bool:
    """Gradients of all weight matrices are within a few orders of each other."""
    trace = run.matrix(GRADIENT_L2)
    names = [n for n in trace.columns if n in run.parameters and len(run.parameters[n].shape) >= 2]
    if not names or not len(trace):
        return True
    norms = nanmedian(trace.select(names).last(20).values, axis=0)
    norms = norms[np.isfinite(norms)]
    return not len(norms) or bool(norms.min() >= FADED * norms.max())


def _largest(run: Run, signal: Signal) -> float:
    trace = run.matrix(signal)
    last = trace.values[-1] if len(trace) else np.zeros(0)
    return float(last[np.isfinite(last)].max(initial=0.0))


def _finding(run: Run, chance: Chance, guess: float, end: float, first: float | None, losses: curves.Curve) -> Finding:
    by_heart = first is not None
    well = by_heart and end <= LEARNED * guess
    validation = run.scalar(LOSS_VALIDATION)
    if by_heart:
        title = "The labels do not belong to the inputs: training is learned by heart, validation is at chance"
        course = (
            f"training loss {figure(first or 0.0)} while every sample was new, {figure(end)} at the end; "
            f"guessing gives {figure(guess)}"
        )
        summary = (
            "Samples seen before are known, new ones are guessed: the model found nothing in the inputs that says "
            "anything about the labels. Inputs and labels are most likely paired wrongly."
        )
    else:
        title = "Neither training nor validation gets better than a guess, though the model moves"
        course = f"training loss {figure(end)} at the end, guessing gives {figure(guess)}"
        summary = (
            "The updates are of a usual size and the outputs depend on the inputs, yet nothing about the labels is "
            "learned. Inputs and labels may be paired wrongly."
        )
    return RULE.finding(
        severity=Severity.ERROR if well else Severity.WARNING,
        confidence=0.85 if well else 0.7 if by_heart else 0.6,
        title=title,
        summary=summary,
        fix=Fix(
            "Look at a few pairs where they reach the model; shuffle inputs and labels with one order, and "
            "join by a key instead of by position.",
            "order = torch.randperm(len(x)); x, y = x[order], y[order]",
        ),
        evidence=[
            Evidence(chance.text, ACCURACY_VALIDATION.name, chance.value, chance.guess),
            Evidence(course, LOSS_TRAIN.name, end, LEARNED * guess, curves.spark(losses.values)),
            *(
                [Evidence("validation loss", LOSS_VALIDATION.name, spark=curves.spark(validation.values))]
                if len(validation)
                else []
            ),
        ],
        first_step=int(losses.steps[0]),
        symptoms=("stuck-at-chance", "train-down-validation-flat") if by_heart else ("stuck-at-chance",),
    )
