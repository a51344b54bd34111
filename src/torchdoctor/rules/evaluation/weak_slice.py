"""One class or subgroup fares far worse than the rest, and the average hides it.

## What it means
Over all validation samples the model does well. For one group of them (a class, short sequences, dark pictures, one
value of a column, a group that you named) it fails most of the time. Users of that group get a bad model.

## Why it happens
- The group is missing or rare in training, or its labels or inputs are damaged there.
- It needs something that the preprocessing removes (contrast, the end of long texts).
- It is mixed up with one other class, which the confusion shows.

## How it is detected
The last validation passes are cut into slices: by class, by length of sequences, brightness and contrast of pictures
(mean and spread of other wide inputs), columns of a small table, size of a number to be predicted, and by `groups`
given to `doctor.log_predictions`. What has many values is cut into fifths, and its two ends into tenths. A slice is
weak if it is wrong at least 30 points more often than the rest and three times as often, the rest is right at least 70
% of the time, and a one-sided binomial test rejects an error rate of twice the rest's, at 1e-4 over the number of
slices looked at. Both of the last passes must say so. For numbers, a slice is weak where its squared error is at least
the variance of its own targets and, less two standard errors, three times the rest's, while the rest explains at least
70 % of its variance. The largest targets are weak where their squared error, less as much, is half of the variance of
all targets and five times the rest's, and not made by a few of them (an info: whatever pulls predictions to the mean
does it). By what a sample is like as a whole (length, brightness, contrast, mean, spread) 15 points and four times make
an info, at either end, where the rest is right nine times out of ten.

## How to fix it
Look at the worst samples of the slice first (their indices are in the evidence): damaged inputs and wrong labels show.
Then add data for it, draw it more often, or weigh it up; and report the metric by slice from now on.

## Known false alarms
A training loss that fell and then went up for good is another matter, and nothing is said of slices. Where the loss
weighs classes and always naming the most frequent class would be right more often, slices of the inputs are not
compared by how often they are right: such a model errs where the rare class is likely, as it was told to. Rare classes
that nothing makes up for are class-imbalance. Classes are not compared in language models, taggers and segmentation.
With a hundred classes some are naturally worse: a weak one must stand out of their spread as well.

## References
Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts" (2020). Chung et al., "Slice Finder" (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from torchdoctor.distributions.binomial import at_least
from torchdoctor.facts import VALIDATION, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import curves, outcomes
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.outcomes import Outcome
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="E009",
    name="weak-slice",
    family="evaluation",
    needs=(SamplesFact,),
    explains=("miscalibrated", "overfitting"),
)

WORSE_BY = 0.3
"""Error rate of the slice above that of the rest: some classes are harder by nature, so a mere difference is no fault.
Chosen; a slice that fails in a third more of its cases is one that its users notice."""
WORSE_TIMES = 3.0
"""Error over that of the rest: a gap of 0.3 means little where the rest errs nearly as often, and so does a slice of
numbers that hardly differ from each other."""
REST_RIGHT = 0.7
"""Share of the rest that is right: below it the whole model is weak, not a slice of it."""
LEARNED = 0.2
"""Of the way from guessing to perfect that the mean recall of the classes has gone: a model that names one class always
is not weak on the other."""
ERROR_RATE = 1e-4
LEAST_SAMPLES = 15
LARGEST = 0.5
"""A slice of more than half of the samples is no slice."""
RARE = 0.2
"""Classes with at most a fifth of the largest one's samples are class-imbalance's."""
OUTSTANDING = 4.0
"""Recall of a class below the median of the others, in units of their spread."""
EXPLAINED = 0.7
"""R2 of the rest where numbers are predicted."""
FAILS = 1.0
"""Squared error of the slice over the variance of its targets."""
SQUARES_SPREAD, ERRORS = math.sqrt(2), 2.0
"""Standard deviation of the squares of normal errors over their mean, and standard errors by which the mean of a slice
may be too high by luck."""
PASSES = 2
BLOCKS, LOST = 12, 1.1
"""Stretches of the training loss, and how far the best of the last third lies above the best before it."""
ATTRIBUTES = ("length", "brightness", "contrast", "mean of the inputs", "spread of the inputs")
"""What a sample is like as a whole; of its ends less will do for an info."""
LEVELS = ("mean of the inputs", "spread of the inputs")
"""The level of a series is that of its forecast: samples picked by it have targets that hardly differ."""
WORSE_AS_WHOLE, TIMES_AS_WHOLE, RIGHT_AS_WHOLE = 0.15, 4.0, 0.9
FAR_OFF, TIMES_BY_SIZE = 0.5, 5.0
"""Squared error of the largest targets over the variance of all, and over the rest's. Picking samples by their own
noisy target makes their error up to 1.7 times as large while noise is at most 30 % of the variance, and noise in
proportion to the target stays below half of the variance up to a fourth of its size."""
FEW_OF_SLICE, MOST_OF_ERROR = 0.05, 0.5
"""Where a twentieth of a slice makes half of its error, it is some outlying targets that are far off, not the slice."""


@dataclass(frozen=True)
class Slice:
    """A group of samples and how it fares against the rest."""

    name: str
    samples: float
    error: float
    rest: float
    classes: int | None = None
    """the class, where the slice is one"""
    numbers: bool = False
    large: bool = False
    """it holds the largest targets"""
    dim: bool = False
    """it is worse than the rest, but by no more than many a slice is by nature"""

    @property
    def gap(self) -> float:
        return self.error - self.rest


def detect(run: Run) -> Iterator[Finding]:
    seen = outcomes.looks(run, VALIDATION)
    if not seen or not run.steps or _fell_back(run):
        return
    weak = find_weak_class(run)
    last = [f for _, f in seen[-PASSES:]]
    found = [weak_slices(fact) for fact in last]
    common = set.intersection(*({s.name for s in part} for part in found))
    slices = [s for s in found[-1] if s.name in common and (s.numbers or not _trades_accuracy(run))]
    candidates = [*([weak] if weak else []), *slices]
    if not candidates:
        return
    unpicked = [s for s in candidates if not s.large and not s.dim]
    worst = max(unpicked or candidates, key=lambda s: s.gap * min(1.0, s.samples / 100) if not s.numbers else s.gap)
    if weak is not None and worst is not weak and worst.gap < weak.gap + 0.1:
        worst = weak
    yield _finding(run, seen[-1][0], last[-1], worst, candidates)


def _fell_back(run: Run) -> bool:
    """The training loss stands above what it had reached: the model lost what it knew, of one slice or another."""
    loss = loss_curve(run)
    heights = curves.blocks(loss.curve.values, BLOCKS) if loss is not None else ()
    return len(heights) == BLOCKS and min(heights[-BLOCKS // 3 :]) > LOST * min(heights[: -BLOCKS // 3])


def _trades_accuracy(run: Run) -> bool:
    """Classes are weighed so that naming the most frequent one always would be right more often: the model errs where
    the rare one is likely, on purpose."""
    seen = outcomes.passes(run)
    return bool(seen) and seen[-1].accuracy < seen[-1].majority and outcomes.is_weighted(run)


def find_weak_class(run: Run) -> Slice | None:
    """The class whose recall is far below that of the others in each of the last passes."""
    seen = outcomes.passes(run)[-PASSES:]
    if not seen or not outcomes.is_by_sample(run):
        return None
    weak = [_weak_class(o) for o in seen]
    if any(w is None for w in weak) or len({w.classes for w in weak if w}) > 1:
        return None
    return weak[-1]


def _weak_class(outcome: Outcome) -> Slice | None:
    frequent = outcome.support > RARE * outcome.support.max()
    known = np.flatnonzero((outcome.support >= LEAST_SAMPLES) & frequent)
    if len(known) < 2:
        return None
    if float(outcome.recall[known].mean()) < 1 / len(known) + LEARNED * (1 - 1 / len(known)):
        return None
    c = int(known[np.argmin(outcome.recall[known])])
    others = known[known != c]
    rest = 1 - float(outcome.correct[others].sum() / outcome.support[others].sum())
    error = 1 - float(outcome.recall[c])
    found = Slice(f"class {c}", float(outcome.support[c]), error, rest, c)
    middle = float(np.median(outcome.recall[others]))
    spread = curves.MAD_TO_SIGMA * float(np.median(np.abs(outcome.recall[others] - middle)))
    if len(others) >= 4 and middle - float(outcome.recall[c]) < OUTSTANDING * spread:
        return None
    return found if _is_weak(found, len(known)) and found.samples <= LARGEST * outcome.samples else None


def weak_slices(fact: SamplesFact) -> list[Slice]:
    return [s for s in (_read(fact, part) for part in fact.slices) if s is not None]


def _read(fact: SamplesFact, part: dict[str, object]) -> Slice | None:
    """The slice, if it is weak."""
    samples, loss = float(part["samples"]), float(part["loss"])  # type: ignore[arg-type]
    rest = fact.samples - samples
    if samples < LEAST_SAMPLES or samples > LARGEST * fact.samples or rest <= 0:
        return None
    name = _name(part)
    if fact.correct is not None and "correct" in part:
        right = float(part["correct"])  # type: ignore[arg-type]
        found = Slice(name, samples, 1 - right / samples, 1 - (fact.correct - right) / rest)
        tested = len(fact.slices)
        if _is_weak(found, tested):
            return found
        dim = part["by"] in ATTRIBUTES and _is_end(fact, part) and _is_dim(found, tested)
        return replace(found, dim=True) if dim else None
    spread, variance = float(part.get("spread") or 0.0), fact.metrics.get("variance", 0.0)  # type: ignore[arg-type]
    if fact.task != "regression" or not variance or not spread or part["by"] in LEVELS:
        return None
    others = (fact.loss * fact.samples - loss * samples) / rest
    surely = loss * max(0.0, 1 - ERRORS * SQUARES_SPREAD / math.sqrt(samples))
    if part["by"] == "target magnitude":
        far = surely >= max(FAR_OFF * variance, TIMES_BY_SIZE * others) and others <= (1 - EXPLAINED) * variance
        found = Slice(name, samples, loss / variance, others / variance, numbers=True, large=True)
        return found if far and fact.whole and not _by_few(fact, loss, samples) else None
    if loss < FAILS * spread or others > (1 - EXPLAINED) * variance or surely < WORSE_TIMES * others:
        return None
    return Slice(name, samples, loss / variance, others / variance, numbers=True)


def _by_few(fact: SamplesFact, loss: float, samples: float) -> bool:
    few = max(1, round(FEW_OF_SLICE * samples))
    return sum(float(w["loss"]) for w in fact.worst[:few]) >= MOST_OF_ERROR * loss * samples


def _is_weak(found: Slice, tested: int) -> bool:
    if found.gap < WORSE_BY or found.error < WORSE_TIMES * found.rest or found.rest > 1 - REST_RIGHT:
        return False
    return _is_sure(found, tested)


def _is_dim(found: Slice, tested: int) -> bool:
    times, rest = found.error >= TIMES_AS_WHOLE * found.rest, found.rest <= 1 - RIGHT_AS_WHOLE
    return found.gap >= WORSE_AS_WHOLE and times and rest and _is_sure(found, tested)


def _is_end(fact: SamplesFact, part: dict[str, object]) -> bool:
    """The lowest or highest of its kind: in the middle classes may meet."""
    alike = [other for other in fact.slices if other["by"] == part["by"]]
    low, high = min(float(o["low"]) for o in alike), max(float(o["high"]) for o in alike)  # type: ignore[arg-type]
    return float(part["low"]) <= low or float(part["high"]) >= high  # type: ignore[arg-type]


def _is_sure(found: Slice, tested: int) -> bool:
    expected = min(0.99, max(2 * found.rest, 0.02))
    wrong = round(found.error * found.samples)
    return at_least(wrong, found.samples, expected) < ERROR_RATE / max(1, tested)


def _name(part: dict[str, object]) -> str:
    if part.get("value") is not None:
        return f"{part['by']} = {part['value']}"
    low, high = float(part["low"]), float(part["high"])  # type: ignore[arg-type]
    return f"{part['by']} {figure(low)}" if low == high else f"{part['by']} {figure(low)} to {figure(high)}"


def _finding(run: Run, step: int, fact: SamplesFact, worst: Slice, others: list[Slice]) -> Finding:
    if worst.numbers:
        title = (
            f"Samples with {worst.name}: the error is {figure(worst.error / max(worst.rest, 1e-12))} times the rest's"
        )
        much = (
            f"the squared error is {worst.error:.2g} times the variance of all targets"
            if worst.large
            else "the predictions are no better than its mean"
        )
        summary = (
            f"In this slice ({worst.samples:.0f} samples) {much}, while for the rest they explain "
            f"{1 - worst.rest:.0%} of the variance."
        )
    else:
        title = f"{_upper(worst.name)} is wrong {worst.error:.0%} of the time, the rest {worst.rest:.0%}"
        summary = (
            f"The average hides it: over all samples {_accuracy(fact):.1%} are right, of this slice "
            f"({worst.samples:.0f} samples) {1 - worst.error:.1%}."
        )
    return RULE.finding(
        severity=Severity.INFO if worst.large or worst.dim else Severity.WARNING,
        confidence=0.85 if worst.samples >= 40 else 0.7,
        title=title,
        summary=summary,
        fix=_fix(fact, worst),
        evidence=_evidence(fact, worst, others),
        first_step=step,
        symptoms=("high-accuracy-fails-in-use",),
    )


def _upper(name: str) -> str:
    return name[0].upper() + name[1:]


def _accuracy(fact: SamplesFact) -> float:
    return (fact.correct or 0) / fact.samples


def _evidence(fact: SamplesFact, worst: Slice, others: list[Slice]) -> Iterator[Evidence]:
    unit = "squared error over the variance" if worst.numbers else "error rate"
    yield Evidence(
        f"{unit} of {worst.name}: {worst.error:.2f} ({worst.samples:.0f} samples), of the rest {worst.rest:.2f}",
        None,
        worst.error,
        worst.rest + WORSE_BY,
    )
    if worst.classes is not None:
        mixed = [(p, n) for t, p, n in fact.confused if t == worst.classes][:3]
        if mixed:
            text = ", ".join(f"class {p} ({n} times)" for p, n in mixed)
            yield Evidence(f"it is taken for {text}")
    for other in others:
        if other is not worst:
            yield Evidence(f"also weak: {other.name}, {other.error:.2f} against {other.rest:.2f}", None, other.error)
    if fact.worst:
        places = [w["index"] for w in fact.worst if worst.classes is None or w.get("label") == worst.classes]
        if places:
            yield Evidence(f"validation samples of the largest loss, by position: {outcomes.few(places, 8)}")


def _fix(fact: SamplesFact, worst: Slice) -> Fix:
    if worst.classes is not None:
        return Fix(
            f"Look at samples of {worst.name} as they reach the model, in training too; then add data for it "
            "or draw it more often.",
            f"bad = ((logits.argmax(1) != y) & (y == {worst.classes})).nonzero().flatten()",
        )
    has_groups = any(part.get("value") is not None for part in fact.slices)
    return Fix(
        f"Look at samples with {worst.name}; check that training holds such samples and that the preprocessing leaves "
        "them intact; then add data for them or weigh them up, and report the metric by slice.",
        None if has_groups else "doctor.log_predictions(logits, y, groups={'slice': values})",
    )
