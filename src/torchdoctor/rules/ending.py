"""How a training ended, whatever its cause: what a headline must say where no cause is proved."""

from __future__ import annotations

import numpy as np

from torchdoctor.facts import VALIDATION, InputsFact, LabelsFact, LossCallFact
from torchdoctor.findings import Ending
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import LossCurve, loss_curve
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACCURACY_VALIDATION, LOSS_TRAIN, LOSS_VALIDATION, USER

POOR = 0.7
"""Training loss at the end over that of a constant guess; see the rule underfitting."""
GUESS = 0.97
"""The same, above which nothing was learned."""
RIGHT, LATE_LOOKS = 0.75, 3
"""Share of the mistakes of guessing that is gone in the last measurements: such a classifier is not poor."""
LEAST_STEPS = 20
"""Fewer steps show no course."""
SAME = 0.9, 1.1
"""Range of the share of the training loss that torch's functions gave, where they gave all of it."""
MOST_OF_LOSS = 0.5
"""Share of the loss that torch's loss function gave, below which other terms decide."""


def judge_ending(run: Run) -> Ending:
    """Return how bad the end of a run is and what of its loss was not understood, by measurement alone."""
    loss = loss_curve(run)
    fault, symptom = _fault_of(run, loss)
    return Ending(fault, tuple(_unseen(run)), symptom, ", ".join(_validation(run)))


def _fault_of(run: Run, loss: LossCurve | None) -> tuple[str, str]:
    """What is bad about the end, or nothing, and its symptom.

    A run that still trains, or has hardly begun, may become better.
    """
    last = [run.scalar(LOSS_TRAIN, key).last(1).values for key in run.keys(LOSS_TRAIN)]
    if any(len(values) and not np.isfinite(values[-1]) for values in last):
        return "the training loss is NaN or infinite", "nan-at-first-step" if run.steps <= 1 else "nan-later"
    if loss is None or not run.finished or run.steps < LEAST_STEPS or not np.isfinite(loss.end):
        return "", ""
    guess = baseline.chance(run)
    if guess:
        left = curves.level(loss.curve.values) / guess
        if left >= GUESS:
            ends = f"{figure(loss.end)} against {figure(guess)}"
            return f"the training loss is not clearly below that of a constant guess ({ends})", "stuck-at-chance"
        gone = baseline.mistakes_gone(run, LATE_LOOKS)
        if left > POOR and not (gone is not None and gone > RIGHT):
            ends = f"{figure(loss.end)} of {figure(guess)}"
            return f"the training loss is still {left:.0%} of that of a constant guess ({ends})", "underfitting"
        return "", ""
    if loss.stuck:
        ends = f"{figure(loss.begin)} at first, {figure(loss.end)} at the end"
        return f"the training loss never fell ({ends})", "stuck-at-chance"
    return "", ""


def _unseen(run: Run) -> list[str]:
    if not run.keys(LOSS_TRAIN):
        return ["no training loss was seen"]
    calls = baseline.loss_calls(run)
    if not calls:
        targets = [f for f in run.facts(InputsFact) if f.role == "target"] or run.facts(LabelsFact)
        return ["no call of a torch loss function was seen", *([] if targets else ["no targets were seen"])]
    share = _called_share(run)
    is_one_call = len({(c.function, c.line) for c in calls}) == 1 and baseline.only_call(run) is not None
    if is_one_call and share is not None and 0 <= share < MOST_OF_LOSS:
        return [f"torch's loss function gave only {share:.0%} of the training loss, and other terms the rest"]
    return []


def _called_share(run: Run) -> float | None:
    """Return the median share of the training loss that torch's functions gave, or None where no step shows both."""
    called, trained = baseline.called_and_trained(run)
    known = trained != 0
    return curves.median(called[known] / trained[known]) if known.any() else None


def _validation(run: Run) -> list[str]:
    loss, accuracy = run.scalar(LOSS_VALIDATION), run.scalar(ACCURACY_VALIDATION)
    found = [f"loss {figure(last)}{_apart(run)}"] if (last := _last(loss)) is not None else []
    return [*found, *([f"accuracy {last:.1%}"] if (last := _last(accuracy)) is not None else [])]


def _apart(run: Run) -> str:
    """Say where the validation loss is not on the scale of the training loss: torch's function gave it, maybe one term
    of several, or a mean where a sum is trained. What the script added up, read or logged is whole."""
    calls = [c for c in run.facts(LossCallFact) if c.phase == VALIDATION]
    places = {(c.function, f"{(c.file or '').replace(chr(92), '/').rpartition('/')[2]}:{c.line}") for c in calls}
    sites = run.phase.validation_sites if run.phase is not None else []
    if len(places) != 1 or any("loss" in name.lower() for name in run.keys(USER)):
        return ""
    function, site = next(iter(places))
    share = _called_share(run)
    if sites != [site] or len(run.optimizers) > 1 or share is None:
        return ""
    return "" if SAME[0] <= share <= SAME[1] else f" as {function} gave it, not on the scale of the training loss"


def _last(trace: Trace) -> float | None:
    return float(trace.last(1).values[-1]) if len(trace) else None
