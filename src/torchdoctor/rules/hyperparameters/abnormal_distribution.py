"""The values of a weight tensor have a shape that trainings do not produce: a few giants, or two values only.

## What it means
Trained and freshly initialised weights are spread like a bell: most are near the middle, few beyond four times the
typical size. Where a few elements carry nearly the whole norm, the layer is these few elements, and the rest is noise.
Where all magnitudes are the same, something has pressed the weights against a limit.

## Why it happens
- Initial values from a distribution with heavy tails (Cauchy, log-normal, an exponential of a normal), or a file of
  weights with broken entries.
- A few elements blown up by a spike in the gradient and never brought back.
- Weights clamped after every step to a limit that is too small for them.

## How it is detected
From the statistics of each matrix or convolution of at least 256 elements. For a normal distribution the mean magnitude
is 0.8 of the root mean square; heavy-tailed is below 0.5 of it (exact zeros left out, and sparse weights and embeddings
with them), together with a largest element of fifteen times the root mean square that has not shrunk to a tenth of its
first size. Two-valued is above 0.9 at a mean near zero. Heavy tails are a warning; two values are one where the
training loss also stays far from its floor.

## How to fix it
Initialise with `kaiming_uniform_` or `xavier_uniform_`; clip gradients by norm; load weights from a sound file; drop or
widen the clamp.

## Known false alarms
Clamped weights in adversarial training (Wasserstein critics) are meant, and so are weights of binary networks: several
optimizers, or a loss that falls, keep this silent. Embeddings of rare tokens are heavy-tailed by nature and left out.

## References
Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010). Martin and
Mahoney, "Heavy-Tailed Universality Predicts Trends in Test Accuracies" (2020). Arjovsky, Chintala and Bottou,
"Wasserstein GAN" (2017), on clamping."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from torchdoctor.facts import ParameterFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import WEIGHT

RULE = Rule(
    code="H013",
    name="abnormal-distribution",
    family="hyperparameters",
    needs=tuple(WEIGHT[k] for k in ("l2", "mean", "absmax", "absmean", "zeros")),
    explains=(
        "bad-initialization-scale",
        "over-regularized",
        "weights-overwritten",
        "vanishing-gradients",
        "underfitting",
    ),
)

HEAVY = 0.5
"""Mean magnitude over root mean square: normal 0.80, uniform 0.87, Laplace 0.71; trained layers were measured between
0.77 and 0.88, a Cauchy start at 0.1."""
GIANT = 15.0
"""Largest element over root mean square; for a million normal ones it is 5."""
TWO_VALUED = 0.9
NO_TAIL = 1.25
"""Largest element over root mean square of values that all lie at a limit; uniform ones have 1.73."""
CENTRED = 0.3
"""Mean over root mean square below which the two values lie on both sides of zero."""
SPARSE = 0.5
"""Share of exact zeros from which on a tensor is sparse on purpose."""
FAR_FROM_FLOOR = 0.3
SHRUNK = 0.1
"""Largest element over that of the first look, below which there are no giants: all elements went to nothing, and some
of them sooner."""
LEAST_ELEMENTS = 256
LAYERS = ("Linear", "Conv")


@dataclass(frozen=True)
class Shape:
    """Of one weight matrix, at its first look where that is heavy-tailed, else at its last."""

    name: str
    step: int
    peaked: float
    """mean magnitude over root mean square"""
    giant: float
    """largest magnitude over root mean square"""
    centre: float
    largest: float
    since_start: bool
    vanished: bool = False
    """all of its elements have become small"""


def detect(run: Run) -> Iterator[Finding]:
    shapes = [s for s in (shape_of(run, name) for name in run.matrix(WEIGHT["l2"]).columns) if s is not None]
    heavy = [s for s in shapes if s.peaked < HEAVY and s.giant > GIANT and not s.vanished]
    if heavy:
        yield _heavy(max(heavy, key=lambda s: s.giant), heavy, len(shapes))
        return
    pressed = [s for s in shapes if s.peaked > TWO_VALUED and s.giant < NO_TAIL and abs(s.centre) < CENTRED]
    pressed = [s for s in pressed if not s.since_start]
    if pressed and 2 * len(pressed) >= len(shapes) and len(run.optimizers) == 1 and _is_poor(run):
        yield _pressed(max(pressed, key=lambda s: s.peaked), pressed, len(shapes))


def is_layer(fact: ParameterFact) -> bool:
    """A matrix or a convolution; by its dimensions where the module does not say."""
    if "mbedding" in fact.module_type:
        return False
    if any(kind in fact.module_type for kind in LAYERS):
        return len(fact.shape) >= 2
    return len(fact.shape) in (2, 4)


def shape_of(run: Run, name: str) -> Shape | None:
    fact = run.parameters.get(name)
    if fact is None or not is_layer(fact):
        return None
    count = math.prod(fact.shape)
    rows = {k: run.matrix(WEIGHT[k]).column(name) for k in ("l2", "mean", "absmax", "absmean", "zeros")}
    known = np.all([np.isfinite(t.values) for t in rows.values()], axis=0) if rows else np.zeros(0)
    if count < LEAST_ELEMENTS or not known.any():
        return None

    def shape(at: int) -> Shape | None:
        share = 1 - float(rows["zeros"].values[at])
        size = float(rows["l2"].values[at]) / math.sqrt(count * max(share, 1e-9))
        if not size > 0 or share < 1 - SPARSE:
            return None
        largest, step = float(rows["absmax"].values[at]), int(rows["l2"].steps[at])
        peaked = float(rows["absmean"].values[at]) / share / size
        return Shape(name, step, peaked, largest / size, float(rows["mean"].values[at]) / size, largest, False)

    first, last = shape(int(np.argmax(known))), shape(int(len(known) - 1 - np.argmax(known[::-1])))
    if first is not None and first.peaked < HEAVY and first.giant > GIANT:
        return replace(first, since_start=True)
    if last is None or first is None:
        return last
    vanished = last.largest < SHRUNK * first.largest
    return replace(last, since_start=first.giant < NO_TAIL, vanished=vanished)


def _is_poor(run: Run) -> bool:
    loss, guess = loss_curve(run), baseline.chance(run)
    return loss is not None and loss.end > FAR_FROM_FLOOR * (guess if guess is not None else loss.begin)


def _heavy(worst: Shape, heavy: list[Shape], count: int) -> Finding:
    fix = (
        Fix(
            "Initialise the layer with a bounded distribution.",
            f"torch.nn.init.kaiming_uniform_(model.get_parameter({worst.name!r}), a=5**0.5)",
        )
        if worst.since_start
        else Fix(
            "Clip gradients by norm, and look for the step at which these elements were blown up.",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        )
    )
    when = "since the first look" if worst.since_start else f"at step {worst.step}"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.88,
        title=f"A few giant elements make up {worst.name}: the largest is {worst.giant:.0f} times the typical size",
        summary=(
            f"{len(heavy)} of {count} weight matrices have tails that no usual start or training gives, {when}. "
            "What these layers compute hangs on a handful of elements."
        ),
        fix=fix,
        evidence=[
            Evidence(
                f"{s.name}: mean magnitude {s.peaked:.2f} of the root mean square (normal: 0.80), largest element "
                f"{figure(s.largest)}",
                WEIGHT["absmean"].name,
                s.peaked,
                HEAVY,
            )
            for s in sorted(heavy, key=lambda s: -s.giant)[:4]
        ],
        where=[Place(parameter=s.name) for s in heavy[:8]],
        first_step=0 if worst.since_start else worst.step,
        symptoms=("slow-descent",),
    )


def _pressed(worst: Shape, pressed: list[Shape], count: int) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        title=f"The weights are pressed against a limit of {figure(worst.largest)}",
        summary=(
            f"In {len(pressed)} of {count} weight matrices nearly all elements have the same magnitude, while the loss "
            "stays far from its floor. Something clamps the weights at every step."
        ),
        fix=Fix("Drop the clamp on the weights, or widen it; use weight decay to keep weights small."),
        evidence=[
            Evidence(
                f"{s.name}: mean magnitude {s.peaked:.2f} of the root mean square (normal: 0.80), none above "
                f"{figure(s.largest)}",
                WEIGHT["absmean"].name,
                s.peaked,
                TWO_VALUED,
            )
            for s in pressed[:4]
        ],
        where=[Place(parameter=s.name) for s in pressed[:8]],
        first_step=pressed[0].step,
        symptoms=("slow-descent",),
    )
