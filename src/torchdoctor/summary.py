"""The short figures of a run, as `doctor.summary()` gives them. Pure numpy over a Run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import HealthFact
from torchdoctor.rules.curves import level
from torchdoctor.rules.norms import read_clipped
from torchdoctor.rules.stages import all_stages
from torchdoctor.run import Floats, Run, Trace

TREND_LOOKS = 8
"""Fewer looks than this have no trend."""
TREND_BEGIN = 3
"""Looks that say where it began, or a twentieth of them."""
TREND_ERRORS = 3.0
"""Two stretches differ if their means lie more standard errors apart: by normal noise once in 370 times."""
TREND_SHARE = 0.02
"""... and by more than this share of the larger one: less is no change that a person would call one."""

END_SHARE = 1 / 80
"""Of the looks, that say where a loss begins and ends: as many as the ends of a smoothed curve rest on."""
LOGGED_LOSS = ("val_loss", "validation_loss", "valid_loss", "eval_loss")
LOGGED_ACCURACY = ("val_accuracy", "val_acc", "validation_accuracy", "valid_accuracy", "valid_acc", "eval_accuracy")
"""Usual names of what people log, in lower case and with any sign between the words."""


def summary(run: Run) -> dict[str, Any]:
    """Figures by name; None where the run does not have them.

    Losses are those of single steps, not smoothed; `loss_at_start` and `loss_at_end` are medians of the first and of
    the last looks, as charts tell them. `nonfinite_events` counts the recorded steps at which the loss, a
    gradient or a weight was NaN or infinite (where steps were merged: rows, so at least); `clip_frequency` is then
    an estimate, from the steps that are known one by one and within what the merged ones allow.
    """
    keys = run.keys(signals.LOSS_TRAIN)
    key = "" if "" in keys or not keys else keys[0]
    loss = run.scalar(signals.LOSS_TRAIN, key)
    validation = seen_or_logged(run, signals.LOSS_VALIDATION, LOGGED_LOSS)
    accuracy = seen_or_logged(run, signals.ACCURACY_VALIDATION, LOGGED_ACCURACY)
    health = run.last_fact(HealthFact)
    best, best_step = _least(loss)
    ends = loss_ends(loss) if len(loss) else (None, None)
    best_validation, best_validation_step = _least(validation)
    figures = {
        "steps": run.steps,
        "finished": run.finished,
        "loss_key": key,
        "first_loss": _at(loss.first(), 0),
        "final_loss": _at(loss.last(), -1),
        "loss_at_start": ends[0],
        "loss_at_end": ends[1],
        "best_loss": best,
        "best_step": best_step,
        "trend": _trend_of_last(run, loss),
        "final_validation_loss": _at(validation.last(), -1),
        "best_validation_loss": best_validation,
        "best_validation_step": best_validation_step,
        "final_validation_accuracy": _at(accuracy.last(), -1),
        "mean_gradient_norm": _mean(gradient_norm(run)),
        "learning_rate": _at(run.scalar(signals.LEARNING_RATE, "0.0").last(), -1),
        "clip_frequency": _clip_frequency(run),
        "nonfinite_events": _nonfinite_events(run),
        "samples_per_second": _median(run.scalar(signals.SAMPLES_PER_SECOND)),
        "seconds_per_step": _median(run.scalar(signals.TIME_STEP)),
        "overhead": health.overhead if health else None,
    }
    return {name: value for name, value in figures.items() if name != "loss_key" or value}


def loss_ends(trace: Trace) -> tuple[float, float]:
    """Medians of the first and of the last looks that were finite, of few looks the first and the last; the end is NaN
    where the very last look was not finite, both where none was."""
    finite = trace.values[np.isfinite(trace.values)].astype(np.float64)
    if not len(finite):
        return float("nan"), float("nan")
    broke = not np.isfinite(trace.last(1).values[-1])
    if len(finite) < TREND_LOOKS:
        return float(finite[0]), float("nan") if broke else float(finite[-1])
    return level(finite, END_SHARE, end=False), float("nan") if broke else level(finite, END_SHARE)


def seen_or_logged(run: Run, signal: signals.Signal, names: tuple[str, ...]) -> Trace:
    """The signal; where it was not seen, what the user logged under one of these names."""
    seen = run.scalar(signal)
    if len(seen):
        return seen
    logged = {re.sub(r"[^a-z]+", "_", key.lower()): key for key in run.keys(signals.USER)}
    key = next((logged[name] for name in names if name in logged), None)
    return seen if key is None else run.scalar(signals.USER, key)


def gradient_norm(run: Run) -> Trace:
    """Of all gradients together, of the optimizer that steps most often. Until November 2026 what is not finite was
    left out of it, so that a run whose gradients were all NaN has zeros: such rows are NaN here. In a long run of that
    time it may be the row beside."""
    keys = run.keys(signals.GRADIENT_GLOBAL_L2)
    found = max((run.scalar(signals.GRADIENT_GLOBAL_L2, key) for key in keys), key=len, default=Trace.empty())
    if len(keys) != 1:  # which parameters each optimizer holds is not known here
        return found
    if not np.isfinite(found.values).all():
        return found
    return _without(found, run.matrix(signals.GRADIENT["nonfinite"]), run.matrix(signals.GRADIENT_L2))


def _without(norm: Trace, counts: Trace, parts: Trace) -> Trace:
    """NaN in rows with elements that are not finite, and in those of 0 in which no part is a number."""
    broken = counts.steps[(counts.high > 0).any(axis=1)] if len(counts) else counts.steps
    unknown = parts.steps[np.isnan(parts.low).all(axis=1)] if len(parts) else parts.steps
    bad = _holding(norm, broken) | ((norm.low == 0) & _holding(norm, unknown))
    if not bad.any():
        return norm
    values, low, high = (np.where(bad, np.nan, side) for side in (norm.values, norm.low, norm.high))
    ends = {end: part and _without(part, counts, parts) for end, part in (("head", norm.head), ("tail", norm.tail))}
    return replace(norm, values=values, low=low, high=high, **ends)


def _holding(trace: Trace, steps: np.ndarray) -> np.ndarray:
    """Rows in which one of these steps lies."""
    if trace.merged == 1:
        return np.isin(trace.steps, steps)
    rows = np.searchsorted(trace.steps, steps)
    return np.isin(np.arange(len(trace)), rows)


def _trend_of_last(run: Run, loss: Trace) -> str:
    """The trend; where trainings follow one another (folds, stages) that of the last, not of the jump between two."""
    found = all_stages(run)
    if len(found) < 2:
        return trend(loss)
    return f"{trend(loss.between(*found[-1]))} in the last of {len(found)} trainings"


def trend(trace: Trace) -> str:
    """In words: falling, fell then flat, flat, rising, fell then rose, not finite, or too short to tell."""
    if len(trace) and not np.isfinite(trace.last(1).values[-1]):
        return "not finite"
    values_S = trace.values[np.isfinite(trace.values)].astype(np.float64)
    if len(values_S) < TREND_LOOKS:
        return "too short to tell"
    values_S = values_S / max(float(np.abs(values_S).max()), np.finfo(np.float64).tiny)  # squares of huge ones are Inf
    quarter = len(values_S) // 4
    first, third, last = values_S[:quarter], values_S[-2 * quarter : -quarter], values_S[-quarter:]
    early, late = _direction(first, last), _direction(third, last)
    began = float(values_S[: max(TREND_BEGIN, len(values_S) // 20)].mean())  # a hump in the first quarter hides it
    if late < 0:
        return "falling" if early <= 0 and began > last.mean() else "rose, then falling"
    if late > 0:
        return "rising" if early >= 0 and began < last.mean() else "fell, then rose"
    return {-1: "fell, then flat", 0: "flat", 1: "rose, then flat"}[early]


def _direction(before: Floats, after: Floats) -> int:
    """-1, 0 or 1: whether the second stretch lies below, within or above the first one's noise."""
    change = float(after.mean() - before.mean())
    error = float(np.sqrt((_noise(before) ** 2 + _noise(after) ** 2) / len(before)))
    least = max(TREND_ERRORS * error, TREND_SHARE * max(abs(float(before.mean())), abs(float(after.mean()))))
    return 0 if abs(change) <= least else int(np.sign(change))


def _noise(values: Floats) -> float:
    """Standard deviation around the stretch's own line, from differences of neighbours."""
    return float(np.diff(values).std() / np.sqrt(2)) if len(values) > 1 else 0.0


def _at(trace: Trace, row: int) -> float | None:
    return float(trace.values[row]) if len(trace) else None


def _least(trace: Trace) -> tuple[float | None, int | None]:
    finite = np.where(np.isfinite(trace.low), trace.low, np.inf)
    if not len(finite) or not np.isfinite(finite.min()):
        return None, None
    row = int(finite.argmin())
    return float(finite[row]), int(trace.steps[row])


def _mean(trace: Trace) -> float | None:
    values = trace.values[np.isfinite(trace.values)]
    return float(values.mean()) if len(values) else None


def _median(trace: Trace) -> float | None:
    values = trace.values[np.isfinite(trace.values)]
    return float(np.median(values)) if len(values) else None


def _clip_frequency(run: Run) -> float | None:
    clipped = read_clipped(run.scalar(signals.CLIP_NORM), run.scalar(signals.CLIP_THRESHOLD))
    return None if clipped is None else clipped.likely


def _nonfinite_events(run: Run) -> int:
    """Steps; of a long run the rows of the signal that has most, since rows of several do not end at the same steps."""
    found: list[np.ndarray] = []
    merged = False
    for signal in (signals.LOSS_TRAIN, signals.GRADIENT_GLOBAL_L2):
        for key in run.keys(signal):
            trace = run.scalar(signal, key)
            bad = ~(np.isfinite(trace.values) & np.isfinite(trace.low) & np.isfinite(trace.high))
            found.append(trace.steps[bad])
            merged = merged or trace.merged > 1
    for signal in (signals.GRADIENT["nonfinite"], signals.WEIGHT["nonfinite"]):
        trace = run.matrix(signal)
        if len(trace):
            found.append(trace.steps[(trace.high > 0).any(axis=1)])
            merged = merged or trace.merged > 1
    if merged:
        return max(map(len, found), default=0)
    return len(np.unique(np.concatenate(found))) if found else 0
