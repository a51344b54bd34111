"""The learning rate is too high: the loss diverges, or collapses and never recovers.

## What it means
Each update overshoots. A step along the gradient lowers the loss only as long as it is short against the curvature of
the loss; beyond about two over the largest curvature every step lands higher on the other side than it started. The
weights grow, the loss grows with them, and the run ends in NaN, or the weights are thrown so far that units die or
saturate and the loss stays flat at the level of a constant guess.

## Why it happens
- A rate taken from another optimizer: 0.1 is usual for SGD and a hundred times too much for Adam.
- The rate was found for another setting: a smaller model, a larger batch, an averaged loss, normalised inputs.
- No warm-up: the rate would be fine later, but not on fresh weights with empty moments.
- Momentum: SGD with momentum 0.9 takes steps ten times as long as its rate suggests.

## How it is detected
Two things must come together. The loss: it ends in NaN or Inf after having grown, or stands above its start for good,
or was thrown up and ended no better than it began, or had learned and lost it all (or half of it and more, for good).
And the updates, measured while the loss was still ordinary: the relative change of the weight matrices in one step.
About 0.001 is usual; 0.05 is large and 0.5 rewrites the layer. A loss that spikes and recovers is not reported (unless
the first updates rewrote the layers and most of the damage is still there: a warning; where it bounces since, or
bounces high with half of the answers right, learning-rate-oscillation says so), nor are the losses of two optimizers
that play against each other unless they end in NaN.

## How to fix it
Divide the rate by ten, and by ten again if that does not help. Usual starting points: Adam and AdamW 0.001 (0.0003 for
transformers, 0.00002 for fine-tuning), SGD with momentum 0.01 to 0.1. A range test finds the largest rate that still
works; take a third of it. If only the first steps are unstable, warm the rate up over the first few hundred.

## Known false alarms
A loss whose meaning changes while it trains (a term that is faded in, longer sequences under a sum) can end above its
start; without large updates it is not reported. Reinforcement learning losses are no measure of progress.

## References
LeCun, Bottou, Orr and Mueller, "Efficient BackProp" (1998). Smith, "Cyclical Learning Rates for Training Neural
Networks" (2017). Cohen et al., "Gradient Descent on Neural Networks Typically Occurs at the Edge of Stability" (2021).
Karpathy, CS231n notes on update-to-weight ratios (2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, movement, settling, stages
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.hyperparameters import learning_rate_oscillation
from torchdoctor.rules.movement import USUAL_RATIO, Movement
from torchdoctor.rules.nonfinite import first
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO, WEIGHT_GLOBAL_L2

RULE = Rule(
    code="H001",
    name="learning-rate-too-high",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE),
    explains=(
        "dead-relu",
        "saturated-activations",
        "exploding-gradients",
        "vanishing-gradients",
        "nonfinite-parameters",
        "learning-rate-oscillation",
        "overfitting",
        "clipping-too-tight",
        "weight-norm-growth",
        "over-regularized",
        "majority-class-collapse",
        "noisy-labels",
        "representation-collapse",
        "abnormal-distribution",
        "underfitting",
        "batch-too-small",
        "log-of-zero",
        "division-by-zero",
        "exp-overflow",
        "half-precision-overflow",
        "loss-scale-collapse",
        "sharp-minimum",
    ),
)

GREW = 3.0
"""The loss stands for good above so many times its start. Fresh batches vary by less than 2 around the start."""
RISEN = 2.0
"""A stretch (running median of five) at so many times the start has left the scatter of batches."""
SPIKE = 5.0
"""A single step at so many times the start has, too."""
NO_GAIN = 0.9
"""End over start from which nothing was gained."""
SHAKEN = 0.2
"""End over start of a run that was thrown up by its first updates and has come back only that far."""
LEARNED = 0.75
"""Best over start of a run that had learned something."""
LEARNED_WELL = 0.5
"""The same for one that had learned much, and lost half of what it had gained for good."""
BEYOND_NOISE, MEDIAN_OF_FIVE = 5.0, 0.54
"""Standard errors (of a running median of five, in units of the scatter from batch to batch) between what was learned
and what is left of it: the lowest of many medians lies three to four below their level by chance."""
LARGE_UPDATE = 0.02
"""Median relative change of the weight matrices in a step that the loss may not be able to take. About 0.001 is
usual; small networks that diverge were measured at 0.03 to 10 before they did."""
HUGE_UPDATE = 0.7
"""One step rewrites the layers. Runs with Adam that still learn reach up to 0.6 in their first step."""
LASTING_UPDATE = 0.2
"""The same for the median of the first looks: runs that still learn are down to 0.15 by then."""
FAR_UP = 100.0
"""A loss that may be negative must rise by so many times what it ever fell."""
UNMISTAKABLE = 30.0
"""Growth that needs no yardstick for the start, and no measured updates where it ends in NaN."""
LOOKS = 5
MELTED = 0.5
"""Weight norm at the end over that at the start. Weight decay melts weights; long steps blow them up."""
LEAST_STEPS = 30
RIGHT = 0.5
"""Share of the mistakes of guessing that are gone in a classifier that has learned, whatever its loss."""


@dataclass(frozen=True)
class Course:
    """How a loss went wrong."""

    how: str
    onset: int
    start: float
    end: float
    """its level in the last fifth of the steps"""
    last: float
    """where it stands if it has risen even above that level"""
    peak: float
    lasting: float
    """the highest running median of five"""

    @property
    def growth(self) -> float:
        return self.lasting / self.start if self.start > 0 else math.inf


@dataclass(frozen=True)
class Updates:
    """Relative changes of the weight matrices (median over them) in the steps before the loss went wrong."""

    largest: float
    lasting: float
    """the larger of the medians over the first looks and over the last ones before the onset"""


def detect(run: Run) -> Iterator[Finding]:
    keys, moved = run.keys(LOSS_TRAIN), movement.read(run)
    adversarial = len(keys) > 1 or (len(run.optimizers) > 1 and not stages.stages(run))
    for key in keys:
        whole = _before_bad_data(run, curves.read(run.scalar(LOSS_TRAIN, key)))
        guess = baseline.chance(run) if len(keys) == 1 else None
        for curve in stages.parts(run, whole):
            found = _examine(curve, guess, moved, adversarial=adversarial) if len(curve) else None
            if found is None or (_has_learned(run, found[0]) and _bounces(run)):
                continue
            if not (found[0].how in ("stuck", "lost") and _melts(run)):
                yield _finding(run, found[0], curve, found[1], key)
                return


def _melts(run: Run) -> bool:
    """The weights go to nothing, so that any update is large beside them: a rate too high blows them up instead."""
    norms = run.scalar(WEIGHT_GLOBAL_L2).values
    norms = norms[np.isfinite(norms)]
    return len(norms) >= LOOKS and float(np.median(norms[-LOOKS:])) < MELTED * float(norms[0])


def _has_learned(run: Run, course: Course) -> bool:
    """By its loss; or, where a few confident mistakes keep that up, by what it gets right."""
    if course.how != "thrown":
        return course.how in ("shaken", "lost")
    gone = baseline.mistakes_gone(run, LOOKS)
    return gone is not None and gone > RIGHT


def _bounces(run: Run) -> bool:
    """A run that came back and is now held up by its steps: learning-rate-oscillation tells it better."""
    state = settling.read(run)
    return state is not None and learning_rate_oscillation.bounces(state)


def _examine(
    curve: Curve, guess: float | None, moved: Movement | None, *, adversarial: bool
) -> tuple[Course, Updates | None] | None:
    """How one training went wrong and with which updates, where these prove that the rate is to blame."""
    start = start_of(curve, guess, moved)
    idle = min(start, guess) if guess is not None else start
    course = course_of(curve, start, idle, adversarial=adversarial)
    if course is None:
        return None
    updates = updates_before(moved, int(curve.steps[-1]) if course.how == "stuck" else course.onset)
    return (course, updates) if is_proved(course, updates, known_start=guess is not None) else None


def start_of(curve: Curve, guess: float | None, moved: Movement | None) -> float:
    """The loss of the untrained model. One batch may be a lucky one, so the first few count, unless the very first
    update can already have thrown it."""
    first = float(curve.values[0])
    if guess is not None and first >= 0:
        return max(first, guess)
    updates = updates_before(moved, int(curve.steps[0]))
    if updates is None or updates.largest >= HUGE_UPDATE:
        return first
    return max(first, float(np.median(curve.values[:LOOKS])))


def course_of(curve: Curve, start: float, idle: float, *, adversarial: bool) -> Course | None:
    """The way in which a loss went wrong, or None. Adversarial losses only count when they end in NaN.

    `idle` is the loss of a model that ignores its inputs: from there on nothing has been gained.
    """
    values, first = curve.values, int(curve.steps[0])
    end, risen = curves.level(values), _risen_at(curve, start)

    def course(how: str, onset: int) -> Course:
        peak, lasting = float(values.max()), float(curves.smooth(values, 5).max())
        return Course(how, onset, start, end, max(end, curves.level(values, 0.0)), peak, lasting)

    if curve.broke_at is not None:
        if risen is not None:
            return course("nan", risen)
        return course("sudden", curve.broke_at) if curve.broke_at - first <= LEAST_STEPS else None
    if adversarial or len(curve) < LEAST_STEPS:
        return None
    if values.min() < 0 or start <= 0:
        far = curves.divergence(curve, start, FAR_UP)
        stays = far is not None and end > start + 0.1 * (far.peak - start)
        return course("grew", far.onset) if far is not None and stays else None
    if risen is not None and end > GREW * start:
        return course("grew", risen)
    lost = _lost_at(curve, idle) or _mostly_lost_at(curve, idle)
    if lost is not None:
        return course("lost", lost)
    if end < NO_GAIN * idle:
        slow = risen is not None and risen - first <= LEAST_STEPS and end > SHAKEN * start
        return course("shaken", risen) if risen is not None and slow else None
    if risen is not None:
        return course("thrown", risen)
    is_flat = curves.trend(values[len(values) // 3 :]).sigmas > -4
    return course("stuck", first) if is_flat else None


def is_proved(course: Course, updates: Updates | None, *, known_start: bool) -> bool:
    """Whether the updates before it were large enough to have caused it."""
    if updates is None:
        return course.how == "nan" and course.peak >= UNMISTAKABLE * course.start
    rewrote = updates.largest >= HUGE_UPDATE or updates.lasting >= LASTING_UPDATE
    if course.how == "shaken":
        return updates.largest >= HUGE_UPDATE
    if course.how in ("stuck", "sudden") or not (known_start or course.growth >= UNMISTAKABLE):
        return rewrote
    return updates.lasting >= LARGE_UPDATE or updates.largest >= HUGE_UPDATE


def _risen_at(curve: Curve, start: float) -> int | None:
    """The first step at which the loss had left its start upwards beyond the scatter of batches."""
    once = curves.divergence(curve, start, SPIKE)
    lasting = curves.divergence(Curve(curve.steps, curves.smooth(curve.values, 5)), start, RISEN)
    onsets = [d.onset for d in (once, lasting) if d is not None]
    return min(onsets, default=None)


def _lost_at(curve: Curve, start: float) -> int | None:
    """The step at which a run that had learned fell back to its start, to stay there."""
    level_S = curves.smooth(curve.values, 5)
    low = int(np.argmin(level_S))
    if level_S[low] > LEARNED * start or len(curve) - low < 10:
        return None
    change = curves.change_point(level_S[low:])
    if change is None or min(curves.level(curve.values, 0.3), change.after) < NO_GAIN * start:
        return None
    if change.after - level_S[low] < BEYOND_NOISE * curves.noise(curve.values) * MEDIAN_OF_FIVE:
        return None
    back = np.flatnonzero(level_S[low:] > LEARNED * start)
    return int(curve.steps[low + int(back[0])]) if len(back) else None


def _mostly_lost_at(curve: Curve, start: float) -> int | None:
    """The step at which a run that had learned well lost half of it or more, and never got it back."""
    level_S = curves.smooth(curve.values, 5)
    late = curve.steps >= curve.steps[-1] / 2
    low = int(np.argmin(level_S))
    if level_S[low] > LEARNED_WELL * start or late[low]:
        return None
    half = (level_S[low] + start) / 2
    noise = BEYOND_NOISE * curves.noise(curve.values[late]) * MEDIAN_OF_FIVE
    if level_S[late].min() < half or curves.level(curve.values, 0.5) - level_S[low] < noise:
        return None
    return int(curve.steps[low + int(np.argmax(level_S[low:] > half))])


def _before_bad_data(run: Run, curve: Curve) -> Curve:
    """Up to the first batch that holds NaN: what comes after is the data's fault."""
    bad = first(run, "input", "target")
    if bad is None or curve.broke_at is None or bad[0] > curve.broke_at:
        return curve
    clean = curve.until(bad[0] - 1)
    return Curve(clean.steps, clean.values, None)


def updates_before(moved: Movement | None, onset: int) -> Updates | None:
    """What the updates were like before that step; the very first look always counts."""
    if moved is None or not len(moved):
        return None
    middle_S = moved.until(max(onset - 1, int(moved.steps[0]))).middle_S
    middle_S = middle_S[np.isfinite(middle_S)]
    if not len(middle_S):
        return None
    lasting = max(float(np.median(middle_S[:LOOKS])), float(np.median(middle_S[-LOOKS:])))
    return Updates(float(middle_S.max()), lasting)


TITLES = {
    "nan": "the loss ended in NaN",
    "grew": "the loss grew from {start} to {last}",
    "thrown": "the loss shot up to {peak} and ended where it began",
    "lost": "what was learned is lost again",
    "shaken": "the first updates threw the loss up to {peak}",
    "sudden": "NaN at step {onset}",
    "stuck": "the loss is stuck at {end}",
}
WORDS = {
    "nan": "The loss grew from {start} to {peak}, then became NaN",
    "grew": "The loss started at {start} and stands at {last}",
    "thrown": "The loss was thrown from {start} to {peak} and ended at {end}, no better than it began",
    "lost": "The loss had fallen well below its start of {start}, went back to {end} and stayed there",
    "shaken": "The first updates threw the loss from {start} to {peak}, and it has come back to {end} only",
    "sudden": "The loss was {start} at the start and became NaN within a few steps",
    "stuck": "The loss started at {start} and has stayed at {end} since the first updates",
}
SYMPTOMS = {
    "nan": ("diverging", "nan-later"),
    "grew": ("diverging",),
    "thrown": ("spikes", "stuck-at-chance"),
    "lost": ("spikes", "stuck-at-chance"),
    "shaken": ("spikes",),
    "sudden": ("nan-later",),
    "stuck": ("stuck-at-chance",),
}


def _finding(run: Run, course: Course, curve: Curve, updates: Updates | None, key: str) -> Finding:
    rate, group = _rate(run, key, course.onset)
    numbers = {name: figure(getattr(course, name)) for name in ("start", "peak", "end", "last", "onset")}
    words, title = WORDS[course.how].format(**numbers), TITLES[course.how].format(**numbers)
    lower = _lower(rate, updates)
    optimizer = run.optimizers.get(group.partition(".")[0])
    code, place = movement.rewritten(run, optimizer, lower)
    return RULE.finding(
        severity=Severity.WARNING if course.how in ("stuck", "shaken") else Severity.ERROR,
        confidence=0.75 if updates is None or course.how in ("stuck", "sudden", "shaken") else 0.92,
        title=f"Learning rate {figure(rate)} is too high: {title}",
        summary=_summary(updates, words),
        fix=Fix(
            f"Lower the learning rate of {optimizer.type if optimizer else 'the optimizer'} to about {figure(lower)}; "
            "if only the first steps are unstable, warm it up.",
            code,
        ),
        evidence=_evidence(course, curve, updates, words),
        where=known(place),
        first_step=course.onset,
        last_step=curve.broke_at,
        symptoms=SYMPTOMS[course.how],
    )


def _summary(updates: Updates | None, words: str) -> str:
    if updates is None:
        return f"{words}. Steps this long leave the region in which the gradient tells where the loss falls."
    size = f"{updates.largest:.0%}" if updates.largest < 10 else f"{figure(updates.largest)} times"
    return f"{words}. One step changed the weight matrices by up to {size} of their size; about 0.1 % is usual."


def _evidence(course: Course, curve: Curve, updates: Updates | None, words: str) -> Iterator[Evidence]:
    yield Evidence(words[0].lower() + words[1:], LOSS_TRAIN.name, course.peak, None, curves.spark(curve.values))
    if curve.broke_at is not None:
        yield Evidence(f"first non-finite loss at step {curve.broke_at}", LOSS_TRAIN.name)
    if updates is not None:
        yield Evidence(
            f"relative change of the weight matrices in one step: up to {figure(updates.largest)}, "
            f"typically {figure(updates.lasting)} (usual: {USUAL_RATIO:g})",
            UPDATE_RATIO.name,
            updates.lasting,
            LARGE_UPDATE,
        )


def _rate(run: Run, key: str, onset: int) -> tuple[float, str]:
    """The largest rate up to the onset, and its group."""
    best = (math.nan, "")
    for group in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, group).first()
        early = trace.values[trace.steps <= max(onset, int(trace.steps[0]) if len(trace) else 0)]
        if len(early) and (not key or group.startswith(f"{key}.")) and not early.max() <= best[0]:
            best = (float(early.max()), group)
    return best


def _lower(rate: float, updates: Updates | None) -> float:
    """A tenth, or as many tenths of tenths as bring the updates down to about ten times the usual."""
    factor = 10.0 if updates is None else max(10.0, updates.lasting / (10 * USUAL_RATIO))
    return rate / 10 ** math.ceil(math.log10(factor) - 0.3)
