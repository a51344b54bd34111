"""The model is too small for the task, and its optimisation is healthy.

## What it means
Training and validation stand at the same poor level and stay there, though the updates are of a usual size and the
learning rate has not run out. What the model gets wrong is not noise: samples that are alike are wrong in the same way.
There is structure left in the data, and nothing left in the model to hold it.

## Why it happens
Layers that are too narrow or too few, a bottleneck with fewer units than the data has directions, a context that is
too short. (A model without a hidden layer on a task that is not linear is of the wrong kind rather than too narrow:
underfitting says so.)

## How it is detected
All of these must hold. The training loss has been flat over the last third (it fell by less than 4 %, or 8 % of all
that was gained over a constant guess, and is not likely to have fallen by a fifth, nor did it over the last half beyond
doubt) and stands between 30 % and 105 % of what a constant guess scores. Validation, where there is one, is within 15 %
of it. The weight matrices still change by 0.01 % to 5 % a step, and the rate is no less than a tenth of its highest.
There are fewer trainable parameters than half the training samples (or than 2,000 where their number is unknown), so
that the model could not learn them by heart; or it reconstructs its own input, bare or from under noise, through a
layer with less than half as many units as the input has numbers. And what it gets wrong has structure: in the training
batches the residuals of nearest neighbours agree (of a model that reconstructs its input: the residuals of its outputs
go together), by 0.2 on average and on the last looks, more than four standard errors above zero, where noise gives
zero. A model with a hidden layer that gives all samples one class has failed otherwise.

## How to fix it
Widen the narrowest layer, add a hidden layer, or use a kind of model that fits the data (convolutions for images).
Double the width until the training loss stops getting better.

## Known false alarms
Label noise and tasks that nobody can predict leave residuals that do not agree between neighbours. Models held back by
their rate, by clipping, by penalties or by a wrong loss have diagnoses of their own, which explain this one. Sequences
of tokens have no nearest neighbours here, and are not judged, nor are models trained one after another (folds).

## References
Goodfellow, Bengio and Courville, "Deep Learning", section 5.2 (2016). Karpathy, "A Recipe for Training Neural Networks"
(2019): overfit first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact, LayersFact, LoaderFact, ModelFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, curves, movement, outcomes, structure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.structure import Agreement
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, LOSS_VALIDATION, RESIDUAL_AGREEMENT, UPDATE_RATIO

RULE = Rule(
    code="A015",
    name="capacity-too-low",
    family="architecture",
    needs=(LOSS_TRAIN, RESIDUAL_AGREEMENT),
    explains=("underfitting", "plateau-or-saddle", "weak-slice", "majority-class-collapse", "miscalibrated"),
)

MIN_STEPS = 150
FLAT, CREEPING = 0.04, 0.08
"""Fall over the last third, relative to the level or to all that was gained over a constant guess, that is none."""
FALLING = 4.0
"""Standard errors of a slope that is no accident of the batches."""
LIKELY, STEEP = 2.0, 0.2
"""The same for a fall that is so steep that it is no plateau, though few batches make it less than certain. Over the
last half, which holds more of them, it must be certain: a slow descent shows there before it shows in a third."""
POOR = 0.3
"""Of the loss of a constant guess: a small model that explains seven tenths may be small on purpose."""
EQUAL = 0.15
"""Validation loss off the training loss, as a share of it: a larger gap is memorised, so capacity is not what lacks.
Chosen to leave room for the scatter of a small validation set."""
MOVES = (1e-4, 5e-2)
"""Relative change of a weight matrix a step; about 0.001 is usual, above 0.05 it is thrown about."""
RATE_LEFT = 0.1
ONE_ANSWER = 0.99
"""Share of the samples that get the same class."""
SQUEEZED = 0.5
"""Units of the narrowest layer over the numbers that have to pass through it."""
ALIKE = 0.25
"""Standard deviations between the moments of an input and of what it was made from. Noise of three quarters of the
signal's own spread raises it by a quarter."""
PER_SAMPLE, UNKNOWN_SAMPLES = 0.5, 2000


WORSE = 1.05
"""The same from above: the smallest model is no worse than a constant guess. Where the loss is, it counts more than the
guess does (weighted classes, another term), and how good it is cannot be told."""


def detect(run: Run) -> Iterator[Finding]:
    loss, guess = loss_curve(run), baseline.chance(run)
    if loss is None or guess is None or loss.broke_at is not None or run.steps < MIN_STEPS or len(loss.curve) < 60:
        return
    if _one_after_another(run) or not run.parameters:
        return
    curve = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False)
    end = curves.level(curve.values, 1 / 3)
    last = curves.trend(curve.values[-(len(curve) // 3) :])
    falls = last.sigmas < -FALLING and last.change < -max(FLAT * end, CREEPING * (guess - end))
    falls = falls or (last.sigmas < -LIKELY and last.change < -STEEP * end)
    half = curves.trend(curve.values[-(len(curve) // 2) :])
    falls = falls or (half.sigmas < -FALLING and half.change < -STEEP * end)
    validation = curves.level(curves.read(run.scalar(LOSS_VALIDATION), closely=False).values)
    if not POOR * guess <= end <= WORSE * guess or falls:
        return
    if math.isfinite(validation) and abs(validation - end) > EQUAL * end:
        return
    moved, size, samples = _movement(run), _trainable(run), _samples(run)
    is_small = size < (PER_SAMPLE * samples if samples else UNKNOWN_SAMPLES) or _is_squeezed(run)
    agreement = structure.agreement(run)
    if moved is None or not MOVES[0] <= moved <= MOVES[1] or not _has_rate(run) or not is_small or agreement is None:
        return
    if agreement.is_structure and not structure.is_linear(run) and not _answers_alike(run):
        yield _finding(run, curve, end, guess, validation, moved, size, samples, agreement)


def _one_after_another(run: Run) -> bool:
    """Models of one kind that came at different steps (folds): their losses, put together, fall and start again."""
    came: dict[str, set[int]] = {}
    for step, fact in run.facts_at(ModelFact):
        came.setdefault(fact.type, set()).add(step)
    return any(len(steps) > 1 for steps in came.values())


def _answers_alike(run: Run) -> bool:
    """A model with a hidden layer that gives every sample the same answer: even the smallest could do better."""
    seen, layers = outcomes.passes(run), run.last_fact(LayersFact)
    last = seen[-1] if seen else outcomes.training(run, 1)
    return last is not None and last.favourite[1] >= ONE_ANSWER and layers is not None and len(layers.layers) > 1


def _movement(run: Run) -> float | None:
    moved = movement.read(run)
    if moved is None or not len(moved):
        return None
    middle = moved.middle_S[len(moved) // 2 :]
    middle = middle[np.isfinite(middle)]
    return float(np.median(middle)) if len(middle) else None


def _has_rate(run: Run) -> bool:
    """The rate at two thirds of the run, from where on the loss is flat, against its highest."""
    for key in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, key)
        if len(trace) and trace.values[2 * len(trace) // 3] < RATE_LEFT * curves.greatest(trace.values):
            return False
    return True


def _trainable(run: Run) -> int:
    wiring = run.last_fact(WiringFact)
    frozen = set(wiring.frozen) if wiring else set()
    return sum(math.prod(p.shape) for n, p in run.parameters.items() if n not in frozen)


def _samples(run: Run) -> int | None:
    return max((f.samples for f in run.facts(LoaderFact) if f.phase == TRAIN and f.samples), default=None)


def _is_squeezed(run: Run) -> bool:
    """The target is the input itself, bare or under noise, and on the way there is a layer far narrower than both."""
    looks = [f for f in run.facts(InputsFact) if f.phase == TRAIN]
    inputs, targets = ([f for f in looks if f.role == role] for role in ("input", "target"))
    targets = [f for f in targets if f.std]
    narrow = _narrowest(run)
    if not targets or narrow is None or narrow["kernel"]:
        return False
    if not all(any(_alike(target, given) for given in inputs) for target in targets):
        return False
    return int(narrow["fan_out"]) < SQUEEZED * min(math.prod(f.shape[1:]) for f in targets)


def _alike(target: InputsFact, given: InputsFact) -> bool:
    """Of one shape, and of nearly the same mean and spread: a copy, or one that noise was put on."""
    if target.shape != given.shape or not target.std or not given.std or target.mean is None or given.mean is None:
        return False
    return abs(target.mean - given.mean) <= ALIKE * target.std and abs(given.std - target.std) <= ALIKE * target.std


def _narrowest(run: Run) -> dict[str, Any] | None:
    """The hidden layer with the fewest units."""
    fact = run.last_fact(LayersFact)
    hidden = fact.layers[1:] if fact else []
    return min(hidden, key=lambda layer: layer["fan_out"], default=None)


def _finding(
    run: Run,
    curve: curves.Curve,
    end: float,
    guess: float,
    validation: float,
    moved: float,
    size: int,
    samples: int | None,
    agreement: Agreement,
) -> Finding:
    narrow = _narrowest(run)
    evidence = [
        Evidence(
            f"the training loss is flat at {curves.figure(end)}, {end / guess:.0%} of a constant guess",
            LOSS_TRAIN.name,
            end / guess,
            POOR,
            curves.spark(curve.values),
        ),
        Evidence(
            f"what it gets wrong is no noise: residuals of nearest neighbours agree by {agreement.mean:.2f} (noise: "
            f"0), {agreement.sigmas:.0f} standard errors",
            RESIDUAL_AGREEMENT.name,
            agreement.mean,
            structure.AGREE,
        ),
        Evidence(
            f"the updates are healthy: weight matrices change by {curves.figure(moved)} a step",
            UPDATE_RATIO.name,
            moved,
            MOVES[0],
        ),
    ]
    if math.isfinite(validation):
        text = f"validation loss {curves.figure(validation)}, no gap to training"
        evidence.insert(1, Evidence(text, LOSS_VALIDATION.name, validation))
    told = f" for {samples:,} training samples" if samples else ""
    where, code = [], None
    if narrow is not None:
        module = str(narrow["name"]).rpartition(".")[0]
        where = [Place(module=module, parameter=str(narrow["name"]))]
        code = f"hidden = {max(32, 8 * int(narrow['fan_out']))}  # {module} has {narrow['fan_out']} units"
        evidence.append(Evidence(f"the narrowest hidden layer, {module}, has {narrow['fan_out']} units", "layers"))
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        title=f"the model is too small: {size:,} trainable parameters{told}",
        summary="Training and validation are stuck at the same poor level with healthy updates, and the errors show "
        "structure that the model has no room for.",
        where=where,
        evidence=evidence,
        fix=Fix(
            "Widen the narrowest layer or add a hidden layer; double until the training loss stops improving.", code
        ),
        symptoms=("both-high-and-equal", "flat-after-drop"),
    )
