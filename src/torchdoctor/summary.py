"""The short figures of a run, as `doctor.summary()` gives them. Pure numpy over a Run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import HealthFact
from torchdoctor.rules.norms import read_clipped
from torchdoctor.rules.stages import all_stages
from torchdoctor.run import Floats, Run, Trace

TREND_LOOKS = 8
"""Fewer looks than this have no trend."""
TREND_ERRORS = 3.0
"""Two stretches differ if their means lie more standard errors apart: by normal noise once in 370 times."""
TREND_SHARE = 0.02
"""... and by more than this share of the larger one: less is no change that a person would call one."""


LOGGED_LOSS = ("val_loss", "validation_loss", "valid_loss", "eval_loss")
LOGGED_ACCURACY = ("val_accuracy", "val_acc", "validation_accuracy", "valid_accuracy", "valid_acc", "eval_accuracy")
"""Usual names of what people log, in lower case and with any sign between the words."""


def summary(run: Run) -> dict[str, Any]:
    """Figures by name; None where the run does not have them.

    Losses are those of single steps, not smoothed. `nonfinite_events` counts the recorded steps at which the loss, a
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
    best_validation, best_validation_step = _least(validation)
    figures = {
        "steps": run.steps,
        "finished": run.finished,
        "loss_key": key,
        "first_loss": _at(loss.first(), 0),
        "final_loss": _at(loss.last(), -1),
        "best_loss": best,
        "best_step": best_step,
        "trend": _trend_of_last(run, loss),
        "final_validation_loss": _at(validation.last(), -1),
        "best_validation_loss": best_validation,
        "best_validation_step": best_validation_step,
        "final_validation_accuracy": _at(accuracy.last(), -1),
        "mean_gradient_norm": _mean(_largest_key(run, signals.GRADIENT_GLOBAL_L2)),
        "learning_rate": _at(run.scalar(signals.LEARNING_RATE, "0.0").last(), -1),
        "clip_frequency": _clip_frequency(run),
        "nonfinite_events": _nonfinite_events(run),
        "samples_per_second": _median(run.scalar(signals.SAMPLES_PER_SECOND)),
        "seconds_per_step": _median(run.scalar(signals.TIME_STEP)),
        "overhead": health.overhead if health else None,
    }
    return {name: value for name, value in figures.items() if name != "loss_key" or value}


def seen_or_logged(run: Run, signal: signals.Signal, names: tuple[str, ...]) -> Trace:
    """The signal; where it was not seen, what the user logged under one of these names."""
    seen = run.scalar(signal)
    if len(seen):
        return seen
    logged = {re.sub(r"[^a-z]+", "_", key.lower()): key for key in run.keys(signals.USER)}
    key = next((logged[name] for name in names if name in logged), None)
    return seen if key is None else run.scalar(signals.USER, key)


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
    if late < 0:
        return "falling" if early <= 0 else "rose, then falling"
    if late > 0:
        return "rising" if early >= 0 else "fell, then rose"
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


def _largest_key(run: Run, signal: signals.Signal) -> Trace:
    """The key with most looks: the optimizer that steps most often."""
    traces = [run.scalar(signal, key) for key in run.keys(signal)]
    return max(traces, key=len, default=Trace.empty())


def _clip_frequency(run: Run) -> float | None:
    clipped = read_clipped(run.scalar(signals.CLIP_NORM), run.scalar(signals.CLIP_THRESHOLD))
    return None if clipped is None else clipped.likely


def _nonfinite_events(run: Run) -> int:
    steps: set[int] = set()
    for signal in (signals.LOSS_TRAIN, signals.GRADIENT_GLOBAL_L2):
        for key in run.keys(signal):
            trace = run.scalar(signal, key)
            bad = ~(np.isfinite(trace.values) & np.isfinite(trace.low) & np.isfinite(trace.high))
            steps.update(trace.steps[bad].tolist())
    for signal in (signals.GRADIENT["nonfinite"], signals.WEIGHT["nonfinite"]):
        trace = run.matrix(signal)
        if len(trace):
            steps.update(trace.steps[(trace.high > 0).any(axis=1)].tolist())
    return len(steps)
