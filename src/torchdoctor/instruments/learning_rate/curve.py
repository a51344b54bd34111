"""What the losses of a learning-rate sweep say: smoothing, divergence, three suggestions, one recommendation.

Everything is told by the change of the loss, never by its ratio, so that a loss may be negative or have any offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WINDOW = 0.1
"""Share of the sweep that smoothing spans unless told otherwise: 0.9 for 100 steps, as fastai and others take it."""
NOISE = 3.0
"""Standard deviations that a rise or fall has to exceed to be seen at all."""
MAD_OF_DIFFERENCES = 0.954
"""Median of the absolute difference of two normal numbers, over their standard deviation."""
VISIBLE = 0.1
"""Share of the usual size of the loss by which it has to rise before a sweep is ended: training on is cheap, and
a curve that ends too early has no divergence to see."""
TENTH = 0.1
"""Of the rate at which the loss diverges: the oldest rule, a decade of safety (Bengio, "Practical recommendations for
gradient-based training of deep architectures", 2012; fastai takes a tenth of the minimum)."""
GIVEN_BACK = 0.5
"""Share of its fall that the loss has lost again where it is called divergent: half way back, midway between the bottom
and no gain at all."""
BEGUN = 0.1
"""Share of its fall from which the loss is on its way down; the usual 10 % of a rise time."""
WAY_DOWN = 2 / 3
"""How far along the valley, on the logarithmic axis, its suggestion stands; fastai's valley says two thirds, too."""


@dataclass(frozen=True)
class Sweep:
    """Losses of one sweep; `losses[i]` was seen right after the update with `rates[i]`, on a batch that it did not use.
    `before` is the loss of the same batch on the weights that the sweep began with."""

    seed: int
    rates: Array
    losses: Array
    before: Array
    diverged: bool

    @property
    def start(self) -> float:
        return float(np.mean(self.before)) if len(self.before) else math.nan

    @property
    def changes(self) -> Array:
        """What training has done to each batch's loss: what makes one batch harder than another drops out."""
        return self.losses - self.before


class Descent:
    """Follows the changes of the loss while a sweep runs, and says when it has diverged."""

    def __init__(self, smoothing: float, tolerance: float | None = 1.0) -> None:
        self._keep, self._tolerance = smoothing, tolerance
        self._sum = self._weight = self._best = 0.0
        self._steps: list[float] = []
        self._last = 0.0

    def diverges(self, change: float, scale: float) -> bool:
        """After one more change of the loss; `scale` is its usual size."""
        if not math.isfinite(change):
            return True
        self._sum = self._keep * self._sum + (1 - self._keep) * change
        self._weight = self._keep * self._weight + (1 - self._keep)
        self._steps.append(abs(change - self._last))
        self._last = change
        level = self._sum / self._weight
        self._best = min(self._best, level)
        if self._tolerance is None:
            return False
        noise = NOISE * float(np.median(self._steps)) / MAD_OF_DIFFERENCES
        return level > max(-self._best * self._tolerance, VISIBLE * scale, noise)


def default_smoothing(steps: int) -> float:
    return float(np.clip(1 - 1 / (WINDOW * steps), 0.5, 0.99))


def smooth(values: Array, smoothing: float) -> Array:
    """Exponential average with bias correction: each is a true weighted mean of the values so far."""
    sums, weights = _recursion(values, smoothing)
    return sums / weights


def smooth_both_ways(values: Array, smoothing: float) -> Array:
    """The same kernel to both sides, so that the curve does not lag behind the rates."""
    after, weights_after = _recursion(values, smoothing)
    until, weights_until = _recursion(values[::-1], smoothing)
    return (after + until[::-1] - values) / (weights_after + weights_until[::-1] - 1)


def _recursion(values: Array, smoothing: float) -> tuple[Array, Array]:
    sums, weights = np.empty(len(values)), np.empty(len(values))
    total = weight = 0.0
    for place, value in enumerate(values):
        total, weight = smoothing * total + float(value), smoothing * weight + 1
        sums[place], weights[place] = total, weight
    return sums, weights


def noise_left(smoothing: float) -> float:
    """Standard deviation of what `smooth_both_ways` leaves of white noise of one."""
    return math.sqrt((1 - smoothing) * (1 + smoothing**2) / (1 + smoothing) ** 3)


@dataclass(frozen=True)
class Trace:
    """A sweep as a smooth curve of the loss's change over the logarithm of the rate."""

    log_rates: Array
    changes: Array
    start: float
    noise: float
    """standard deviation of `changes` around the truth, near the bottom"""
    turn: int
    """where it is lowest"""
    diverged: bool

    @property
    def fall(self) -> float:
        return -float(self.changes[self.turn])

    @property
    def begins(self) -> int:
        """The last place before the turn where less than a tenth of the fall is done."""
        above = np.flatnonzero(self.changes[: self.turn + 1] > -BEGUN * self.fall)
        return int(above[-1]) if len(above) else 0

    @property
    def ends(self) -> int | None:
        """The first place after the turn where half of the fall is lost again."""
        lost = np.flatnonzero(self.changes[self.turn :] > -(1 - GIVEN_BACK) * self.fall)
        if len(lost):
            return self.turn + int(lost[0])
        return len(self.changes) - 1 if self.diverged else None

    @property
    def turned(self) -> bool:
        """The loss has diverged, or at least stands above its lowest again by more than noise makes."""
        return self.ends is not None or float(self.changes[-1]) + self.fall > NOISE * self.noise


def trace(sweep: Sweep, smoothing: float) -> Trace:
    """Of at least one change. What lies far above the start is cut, so that an explosion does not reach back."""
    changes = sweep.changes
    best = float(smooth(changes, smoothing).min())
    ceiling = max(-best, NOISE * _spread_of(changes))
    curve = smooth_both_ways(np.minimum(changes, ceiling), smoothing)
    turn = int(curve.argmin())
    near = changes[max(0, turn - max(10, len(changes) // 4)) : turn + 1]
    return Trace(
        np.log10(sweep.rates), curve, sweep.start, noise_left(smoothing) * _spread_of(near), turn, sweep.diverged
    )


def _spread_of(values: Array) -> float:
    """Of the noise alone, from neighbours: a trend does not count."""
    steps = np.diff(values)
    return float(np.median(np.abs(steps - np.median(steps)))) / MAD_OF_DIFFERENCES if len(steps) else 0.0


@dataclass(frozen=True)
class Suggestions:
    """Rates by three rules; None where the curve does not say."""

    steepest: float | None = None
    """where the loss falls fastest"""
    tenth: float | None = None
    """a tenth of the rate at which it diverges"""
    valley: float | None = None
    """two thirds of the way, on the logarithmic axis, from where it begins to fall down to where it turns"""
    turn: float | None = None
    """where the loss is lowest"""
    divergence: float | None = None
    """where half of what was gained is lost again"""

    @property
    def recommended(self) -> float | None:
        """The mean, on the logarithmic axis, of valley, tenth and turn. Valley and tenth err to the low side where the
        loss falls slowly or a rate holds only for a while, the turn errs to the high side: a rate that lowers the loss
        for a step is not one to train with. The steepest place is left out, since it is where a slow start ends."""
        known = [r for r in (self.valley, self.turn) if r is not None]
        known += [self.tenth if self.turn is None else min(self.tenth, self.turn)] if self.tenth is not None else []
        return float(10 ** np.mean(np.log10(known))) if known else None

    @property
    def disagreement(self) -> float:
        """Decades between the lowest and the highest."""
        known = [math.log10(r) for r in (self.steepest, self.tenth, self.valley) if r is not None]
        return max(known) - min(known) if known else 0.0


def suggest(curve: Trace) -> Suggestions:
    if curve.fall <= 0:
        return Suggestions()
    places, turn, ends = curve.log_rates, curve.turn, curve.ends
    slopes = np.gradient(curve.changes, places)[: turn + 1] if turn else np.zeros(1)
    valley = places[curve.begins] + WAY_DOWN * (places[turn] - places[curve.begins])
    divergence = None if ends is None else 10 ** float(places[ends])
    return Suggestions(
        steepest=10 ** float(places[int(slopes.argmin())]),
        tenth=None if divergence is None else TENTH * divergence,
        valley=10 ** float(valley),
        turn=10 ** float(places[turn]),
        divergence=divergence,
    )


def suggest_for_all(traces: Sequence[Trace]) -> list[Suggestions]:
    """For each sweep. Where most were cut while the loss still fell, none says where it turns: it is lowest at the end
    because there is no more of it."""
    each = [suggest(curve) for curve in traces]
    falling = 2 * sum(not t.turned for t in traces) > len(traces)
    return [replace(s, turn=None) for s in each] if falling else each


def are_cut(traces: Sequence[Trace]) -> bool:
    """Most ended at the highest rate, not where the loss diverges."""
    return 2 * sum(t.ends is None for t in traces) > len(traces)


def middle(rates: Sequence[float]) -> float:
    """The median on the logarithmic axis."""
    return float(10 ** np.median(np.log10(rates)))


def combine(each: Sequence[Suggestions]) -> Suggestions:
    """The middle over the seeds, rule by rule; a rule that fewer than half of them know is not known."""

    def over_seeds(name: str) -> float | None:
        known = [rate for rate in (getattr(s, name) for s in each) if rate is not None]
        return middle(known) if 2 * len(known) >= len(each) and known else None

    return Suggestions(*(over_seeds(name) for name in ("steepest", "tenth", "valley", "turn", "divergence")))


@dataclass(frozen=True)
class Band:
    """The smoothed losses of several sweeps at the rates that at least one has reached."""

    rates: Array = field(repr=False)
    low: Array = field(repr=False)
    middle: Array = field(repr=False)
    high: Array = field(repr=False)


def band(traces: Sequence[Trace]) -> Band:
    longest = max(traces, key=lambda t: len(t.log_rates))
    losses = np.full((len(traces), len(longest.log_rates)), np.nan)
    for row, curve in zip(losses, traces, strict=True):
        row[: len(curve.changes)] = curve.start + curve.changes
    return Band(10**longest.log_rates, np.nanmin(losses, 0), np.nanmedian(losses, 0), np.nanmax(losses, 0))
