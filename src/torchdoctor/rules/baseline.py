"""What a model that knows nothing would score: the yardstick for "it has learned" and "it is already good"."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact, LossCallFact, LossDivisionFact
from torchdoctor.rules import curves
from torchdoctor.run import Floats, Run
from torchdoctor.signals import ACCURACY_TRAIN, LOSS_CALLED, LOSS_TRAIN, TARGET_MEAN, TARGET_STD

SQUARED = ("mse_loss",)
ABSOLUTE = ("l1_loss", "smooth_l1_loss", "huber_loss")
CLASSIFICATION = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
NOT_NEGATIVE = (*SQUARED, *ABSOLUTE, *CLASSIFICATION, *BINARY)
"""Losses whose floor is zero (with targets that make sense)."""

MEAN_DEVIATION = math.sqrt(2 / math.pi)
"""Mean absolute deviation of a normal variable of unit standard deviation."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of the training targets over everything that was looked at."""

    mean: float
    std: float


def loss_calls(run: Run, phase: str = TRAIN) -> list[LossCallFact]:
    """Calls of known losses in that phase, oldest first; those of unknown phase count where there are no others."""
    calls = run.facts(LossCallFact)
    return [c for c in calls if c.phase == phase] or [c for c in calls if c.phase == "unknown"]


def only_call(run: Run) -> LossCallFact | None:
    """The training loss, where it is one call of one function with mean reduction."""
    calls = loss_calls(run)
    functions = {(c.function, c.reduction) for c in calls}
    if len(functions) != 1 or calls[0].reduction not in (None, "mean"):
        return None
    return calls[-1]


def mistakes_gone(run: Run, looks: int) -> float | None:
    """Share of the mistakes of guessing a class that the last looks at training no longer have. None where unknown."""
    accuracy, call = run.scalar(ACCURACY_TRAIN).values, only_call(run)
    if call is None or len(accuracy) < looks:
        return None
    guess = 1 / (call.classes or 2)
    return (float(np.median(accuracy[-looks:])) - guess) / (1 - guess)


def chance(run: Run) -> float | None:
    """The mean loss of a constant, best guess: ln(classes), ln 2, the targets' variance. None where unknown."""
    call = only_call(run)
    if call is None:
        return None
    if call.function in CLASSIFICATION:
        return math.log(call.classes) if call.classes and call.classes > 1 else None
    if call.function in BINARY:
        return math.log(2)
    spread = targets(run)
    if spread is None or spread.std == 0:
        return None
    if call.function in SQUARED:
        return spread.std**2
    return MEAN_DEVIATION * spread.std if call.function == "l1_loss" else None


def targets(run: Run) -> Spread | None:
    """Spread of the training targets: within batches and between them."""
    means, stds = run.scalar(TARGET_MEAN, TRAIN), run.scalar(TARGET_STD, TRAIN)
    if len(means) and len(means) == len(stds):
        mean_S, std_S = means.values.astype(np.float64), stds.values.astype(np.float64)
        keep = np.isfinite(mean_S) & np.isfinite(std_S)
        if keep.any():
            within, between = np.square(std_S[keep]).mean(), mean_S[keep].var()
            return Spread(float(mean_S[keep].mean()), math.sqrt(float(within + between)))
    looks = [f for f in run.facts(InputsFact) if f.role == "target" and f.phase == TRAIN and f.std is not None]
    if not looks:
        return None
    return Spread(float(np.median([f.mean or 0.0 for f in looks])), float(np.median([f.std for f in looks])))


def never_negative(run: Run) -> bool:
    """Whether the training loss is made of known losses that cannot fall below zero."""
    calls = loss_calls(run)
    return bool(calls) and all(c.function in NOT_NEGATIVE for c in calls)


def division(run: Run) -> float:
    """What the script divides its loss by before each backward pass, for gradient accumulation; 1 where it does not."""
    fact = run.last_fact(LossDivisionFact)
    return fact.divisor if fact is not None and fact.divisor > 0 else 1.0


def called_and_trained(run: Run) -> tuple[Floats, Floats]:
    """The loss as torch's functions gave it and as backward got it, at the steps on which both are known and finite."""
    keys = run.keys(LOSS_TRAIN)
    key = next((k for k in keys if k), keys[0] if keys else "")
    called, trained = run.scalar(LOSS_CALLED).first(), run.scalar(LOSS_TRAIN, key).first()
    _, (at_called, at_trained) = curves.rows_in_common(called, trained)
    given, taken = called.values[at_called], trained.values[at_trained]
    keep = np.isfinite(given) & np.isfinite(taken)
    return given[keep].astype(np.float64), taken[keep].astype(np.float64)
