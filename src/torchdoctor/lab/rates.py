"""What is said of a learning rate: by what other rates, a warm-up or a decay make of the same task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from torchdoctor.lab.figures import percent
from torchdoctor.lab.station import Choices, Verdict
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters.learning_rate_oscillation import OPPOSED

ENOUGH = 3e-3
"""Of the loss at the start: with so little left nobody would ask for another rate."""
NEAR_BEST, NEAR_SHARE = 3.0, 0.1
"""Times what the best rate of the sweep leaves that a good one may leave; and by how much more of the start."""
NEAR_RATE = 2.0
"""Times by which a rate may lie below the best one of the sweep, whose rates are 1.8 times apart."""
FAR_DOWN = 0.3
"""Of the loss at the start: with more left one does not speak of a good rate, were it the best of all."""
GLACIAL, MANY_TIMES = 0.1, 10.0
"""Of the loss at the start, and times by which the best rate is higher: from there on too low a rate is a warning."""
SAVED = 10.0
"""Times by which a warm-up or a decay must better the end to be called what was missing."""
NEVER = 0.9
"""Of the loss at the start: where even the best rate leaves more, rates are not what is wrong."""
SWINGS = 0.35
"""Share of the steps of the last half in which the loss rises, from which on it bounces."""
AT_SADDLE, SADDLE = 0.3, 0.25
"""How far from the ridge a path is still at the saddle, and the loss there."""


def judge(choices: Choices, found: Mapping[str, Any]) -> Verdict:
    """By what other rates, a warm-up or a decay make of the same task: shares of the loss at the start, no scale."""
    rate, start, end = 10 ** float(choices["rate"]), found["start"], found["final"]["chosen"]
    best, lowest = best_of(found)
    called, left = f"A rate of {figure(rate)}", end / start
    if not end <= start:
        return _diverged(choices, found, called)
    if _hangs_at_saddle(choices, found):
        return Verdict(
            "warning",
            f"It hangs at the saddle: the loss stays at {figure(end)}, where the slope is next to nothing",
            "Momentum or a higher rate gets past; so does the noise of smaller batches.",
            "plateau-or-saddle",
        )
    near = end <= NEAR_BEST * lowest and left - lowest / start <= NEAR_SHARE
    if left <= ENOUGH or near or rate < best <= NEAR_RATE * rate:
        if left > NEVER:
            return Verdict("info", f"No rate gets far in {choices['steps']} steps", "Give it more steps.")
        how = "good here" if left <= FAR_DOWN else "about as good as any here"
        return Verdict("healthy", f"{called} is {how}: {percent(left)} of the loss is left")
    other = f"{figure(best)} would leave {percent(lowest / start)}"
    if best < rate:
        return _unsettled(choices, found, called, other)
    grave = left > GLACIAL and best >= MANY_TIMES * rate
    return Verdict(
        "warning" if grave else "info",
        f"{called} is too low: {percent(left)} of the loss is left after {choices['steps']} steps; {other}",
        "Raise the rate threefold until the loss gets unsteady, then go back one step.",
        "learning-rate-too-low" if grave else "",
    )


def _diverged(choices: Choices, found: Mapping[str, Any], called: str) -> Verdict:
    start, end, warmed = found["start"], found["final"]["chosen"], found["final"]["warmup"]
    how = f"the loss ends at {figure(end)}" if math.isfinite(end) else "the loss runs off to infinity"
    if choices["schedule"] in ("constant", "step", "cosine") and warmed < start / SAVED:
        return Verdict(
            "error",
            f"{called} is too high for the first steps: {how}; with a warm-up {percent(warmed / start)} would be left",
            "Warm the rate up over the first tenth of the steps.",
            "missing-warmup",
        )
    best, lowest = best_of(found)
    other = f"; {figure(best)} leaves {percent(lowest / start)} of it" if lowest < start else ""
    return Verdict(
        "error",
        f"{called} is too high: {how}, from {figure(start)}{other}",
        f"Divide the rate by three until it falls; {figure(best)} did best here.",
        "learning-rate-too-high",
    )


def _unsettled(choices: Choices, found: Mapping[str, Any], called: str, other: str) -> Verdict:
    start, end, decayed = found["start"], found["final"]["chosen"], found["final"]["cosine"]
    left = percent(end / start)
    if choices["schedule"] == "constant" and decayed * SAVED < end:
        title = f"{called} never settles: {left} of the loss is left; decayed by a cosine, {percent(decayed / start)}"
        return Verdict("warning", title, "Let the rate fall to zero over the run.", "learning-rate-oscillation")
    if _bounces(choices, found):
        title = (
            f"{called} is too high to settle: the path jumps back and forth, and {left} of the loss is left; {other}"
        )
        return Verdict("warning", title, "A third of the rate, or let it decay.", "learning-rate-oscillation")
    return Verdict(
        "warning",
        f"{called} is too high: {left} of the loss is left; {other}",
        "Lower the rate to a third.",
        "learning-rate-too-high",
    )


def best_of(found: Mapping[str, Any]) -> tuple[float, float]:
    """The rate of the sweep that ends lowest, and where; NaN for both where none ends anywhere."""
    ends = np.array(found["sweep"]["final"], float)
    ends[~np.isfinite(ends)] = np.inf
    at = int(ends.argmin())
    if not math.isfinite(ends[at]):
        return math.nan, math.inf
    return float(10 ** found["sweep"]["powers"][at]), float(ends[at])


def _bounces(choices: Choices, found: Mapping[str, Any]) -> bool:
    """Successive moves take each other back; or the loss of all samples goes up about as often as down."""
    late = np.array(found["losses"][1], float)
    late = late[len(late) // 2 :]
    rises = float((np.diff(late) > 0).mean()) if len(late) > 1 else 0.0
    return bool(found["turns"] <= OPPOSED or (choices["batch"] == "0" and rises >= SWINGS))


def _hangs_at_saddle(choices: Choices, found: Mapping[str, Any]) -> bool:
    if choices["task"] != "saddle" or not found["map"]:
        return False
    return abs(found["map"]["path"][-1][1]) < AT_SADDLE and found["final"]["chosen"] < 2 * SADDLE
