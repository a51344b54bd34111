"""What is said of a learning rate: by what other rates, a warm-up or a decay make of the same task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from torchdoctor.lab.figures import percent
from torchdoctor.lab.station import Choices, Scale, Verdict
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters.learning_rate_oscillation import OPPOSED
from torchdoctor.run import Floats

RATE = Scale("rate", "Learning rate", -4, 1, -1.5, step=0.1, log=True)
STEPS = Scale("steps", "Steps", 20, 300, 100, step=10)
"""What can be chosen, so that nothing is advised that cannot."""
ROUND = 1 + 1e-9
"""What a power of ten may be off by."""
ENOUGH = 3e-3
"""Of the loss at the start: with so little left nobody would ask for another rate."""
NEAR_BEST, NEAR_SHARE = 3.0, 0.1
"""Times what the best rate tried leaves that a good one may leave; and by how much more of the start."""
NEAR_RATE = 2.0
"""Times by which a rate may lie below the best one tried: those of the sweep are 1.8 times apart."""
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
PAST = 0.5
"""Of the loss at the saddle, or at a chance end: a rate that ends below it got farther."""
RESTLESS = 10.0
"""Times the way that a path gains in its last half that it may go for it: more is to and fro."""


def judge(choices: Choices, found: Mapping[str, Any]) -> Verdict:
    """By what other rates, a warm-up or a decay make of the same task: shares of the loss at the start, no scale."""
    rate, start, end = 10 ** float(choices["rate"]), found["start"], found["final"]["chosen"]
    best, lowest = best_of(found, rate, 10**RATE.low, 10**RATE.high)
    called, left = f"A rate of {figure(rate)}", end / start
    if not end <= start:
        return _diverged(choices, found, rate)
    if _hangs_at_saddle(choices, found):
        return Verdict(
            "warning",
            f"It hangs at the saddle: the loss stays at {figure(end)}, where the slope is next to nothing",
            _get_past(choices, best, lowest),
            "plateau-or-saddle",
        )
    slower = _best_below(found, rate)
    thrown = _ends_by_chance(choices, found) or (choices["task"] == "saddle" and _is_thrown(found))
    if thrown and slower[1] < PAST * end:
        return _unsettled(choices, found, rate, *slower)
    near = end <= NEAR_BEST * lowest and left - lowest / start <= NEAR_SHARE
    if left <= ENOUGH or near or (rate < best <= NEAR_RATE * rate and left <= NEVER):
        if left > NEVER:
            return Verdict("info", f"No rate gets far in {choices['steps']} steps", _go_on(choices))
        how = "good here" if left <= FAR_DOWN else "about as good as any here"
        return Verdict("healthy", f"{called} is {how}: {percent(left)} of the loss is left")
    if best < rate or (_is_restless(_late(_path(found))) and slower[1] < end):
        return _unsettled(choices, found, rate, *slower)
    other = f"{figure(best)} would leave {percent(lowest / start)}"
    grave = left > GLACIAL and best >= MANY_TIMES * rate
    return Verdict(
        "warning" if grave else "info",
        f"{called} is too low: {percent(left)} of the loss is left after {choices['steps']} steps; {other}",
        _go_faster(choices, rate),
        "learning-rate-too-low" if grave else "",
    )


def _diverged(choices: Choices, found: Mapping[str, Any], rate: float) -> Verdict:
    called = f"A rate of {figure(rate)}"
    start, end, warmed = found["start"], found["final"]["chosen"], found["final"]["warmup"]
    how = f"the loss ends at {figure(end)}" if math.isfinite(end) else "the loss runs off to infinity"
    if choices["schedule"] in ("constant", "step", "cosine") and warmed < start / SAVED:
        return Verdict(
            "error",
            f"{called} is too high for the first steps: {how}; with a warm-up {percent(warmed / start)} would be left",
            "Warm the rate up over the first tenth of the steps.",
            "missing-warmup",
        )
    best, lowest = _best_below(found, rate)
    other = f"; {figure(best)} leaves {percent(lowest / start)} of it" if lowest < start else ""
    return Verdict(
        "error",
        f"{called} is too high: {how}, from {figure(start)}{other}",
        _go_slower(rate, best),
        "learning-rate-too-high",
    )


def _unsettled(choices: Choices, found: Mapping[str, Any], rate: float, slower: float, lowest: float) -> Verdict:
    """`slower` is the best of the lower rates."""
    start, end, decayed = found["start"], found["final"]["chosen"], found["final"]["cosine"]
    called, left, constant = f"A rate of {figure(rate)}", percent(end / start), choices["schedule"] == "constant"
    other = f"{figure(slower)} would leave {percent(lowest / start)}"
    if constant and decayed * SAVED < end:
        title = f"{called} never settles: {left} of the loss is left; decayed by a cosine, {percent(decayed / start)}"
        return Verdict("warning", title, "Let the rate fall to zero over the run.", "learning-rate-oscillation")
    if _bounces(choices, found):
        title = (
            f"{called} is too high to settle: the path jumps back and forth, and {left} of the loss is left; {other}"
        )
        return Verdict("warning", title, _go_slower(rate, slower, constant), "learning-rate-oscillation")
    return Verdict(
        "warning",
        f"{called} is too high: {left} of the loss is left; {other}",
        _go_slower(rate, slower),
        "learning-rate-too-high",
    )


def _get_past(choices: Choices, best: float, lowest: float) -> str:
    """What leads on from a saddle: what was seen to, and what is not chosen yet."""
    ways = []
    if lowest < PAST * SADDLE:
        ways.append(f"a rate of {figure(best)}")
    if choices["optimizer"] == "sgd":
        ways.append("momentum")
    if choices["batch"] != "1":
        ways.append("the noise of smaller batches")
    if not ways:
        return _go_on(choices)
    said = " or ".join(ways)
    return f"{said[0].upper()}{said[1:]} leads past it."


def _go_on(choices: Choices) -> str:
    if float(choices["steps"]) < STEPS.high:
        return "Give it more steps."
    return "Momentum goes farther." if choices["optimizer"] == "sgd" else "Another optimizer may go farther."


def _go_faster(choices: Choices, rate: float) -> str:
    if 3 * rate <= 10**RATE.high:
        return "Raise the rate threefold until the loss gets unsteady, then go back one step."
    return f"Rates end at {figure(10**RATE.high)} here. {_go_on(choices)}"


def _go_slower(rate: float, best: float, decay: bool = False) -> str:
    said = f" Of those tried {figure(best)} did best." if best < rate else ""
    if rate / 3 >= 10**RATE.low:
        return f"Divide the rate by three until the loss falls steadily{', or let it decay' * decay}.{said}"
    return f"Rates begin at {figure(10**RATE.low)} here.{said or ' Another optimizer may do.'}"


def tried(found: Mapping[str, Any], rate: float) -> tuple[Floats, Floats]:
    """All rates in order, and where they end: those of the sweep, the chosen one, a third and three times of it."""
    rates = np.concatenate([10 ** np.array(found["sweep"]["powers"], float), [rate / 3, rate, 3 * rate]])
    own = [found["final"][name] for name in ("third", "chosen", "triple")]
    ends = np.array([*found["sweep"]["final"], *own], float)
    order = np.argsort(rates, kind="stable")
    return rates[order], ends[order]


def best_of(found: Mapping[str, Any], rate: float, least: float = 0.0, most: float = math.inf) -> tuple[float, float]:
    """Of the rates tried between the two the one that ends lowest, and where; NaN and infinity where none ends."""
    rates, ends = tried(found, rate)
    ends = np.where(np.isfinite(ends) & (rates >= least / ROUND) & (rates <= most * ROUND), ends, np.inf)
    at = int(ends.argmin())
    return (float(rates[at]), float(ends[at])) if math.isfinite(ends[at]) else (math.nan, math.inf)


def _best_below(found: Mapping[str, Any], rate: float) -> tuple[float, float]:
    """Of the lower rates that can be chosen."""
    return best_of(found, rate, 10**RATE.low, rate / ROUND**2)


def _bounces(choices: Choices, found: Mapping[str, Any]) -> bool:
    """Successive moves take each other back; or the loss of all samples goes up about as often as down."""
    late = _late(found["losses"][1])
    rises = float((np.diff(late) > 0).mean()) if len(late) > 1 else 0.0
    return bool(found["turns"] <= OPPOSED or (choices["batch"] == "0" and rises >= SWINGS))


def _is_restless(path: Floats) -> bool:
    """It moves much and gets nowhere: the way is many times what is gained."""
    if len(path) < 2 or not np.isfinite(path).all():
        return False
    return bool(np.hypot(*np.diff(path, axis=0).T).sum() > RESTLESS * np.hypot(*(path[-1] - path[0])))


def _ends_by_chance(choices: Choices, found: Mapping[str, Any]) -> bool:
    """A path that jumps about at a constant rate, and whose last place is far better than the typical one before."""
    if choices["schedule"] != "constant" or not _is_restless(_late(_path(found))):
        return False
    typical = float(np.median(_late(found["losses"][1])))
    return typical > NEAR_BEST * max(found["final"]["chosen"], ENOUGH * found["start"])


def _is_thrown(found: Mapping[str, Any]) -> bool:
    """By a long way to no lower than the saddle."""
    return _is_restless(_path(found)) and found["final"]["chosen"] > PAST * SADDLE


def _hangs_at_saddle(choices: Choices, found: Mapping[str, Any]) -> bool:
    """For the last half, and by a short way: a path that jumps about and happens to end there does not hang."""
    path = _path(found)
    if choices["task"] != "saddle" or not len(path) or _is_restless(path):
        return False
    losses = _late(found["losses"][1])
    return bool((np.abs(_late(path)[:, 1]) < AT_SADDLE).all() and (losses < 2 * SADDLE).all())


def _path(found: Mapping[str, Any]) -> Floats:
    """On the map, where there is one."""
    return np.array(found["map"]["path"], float) if found["map"] else np.zeros((0, 2))


def _late(values: Any) -> Floats:
    array = np.array(values, float)
    return array[len(array) // 2 :]
