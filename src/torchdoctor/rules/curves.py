"""Reading a loss curve: level, noise, trend, change point, divergence. Pure numpy, no thresholds of any one rule.

Losses come on every scale and with every amount of noise, so nothing here compares a loss with a fixed number:
a level is a median, a trend is measured in its own standard errors, a jump in units of the noise around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.run import Trace

Floats = NDArray[np.floating[Any]]

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal sample times this is its standard deviation."""

TREND_BLOCKS = 12
"""A trend is fitted to the medians of this many stretches, so that neighbouring batches may be correlated."""

SPARK_POINTS = 40


@dataclass(frozen=True)
class Curve:
    """The finite part of a trace, and where it stopped being finite for good or for once."""

    steps: NDArray[np.integer[Any]]
    values: Floats
    broke_at: int | None = None
    """the first step whose value was NaN or Inf"""

    def __len__(self) -> int:
        return len(self.values)

    def until(self, step: int) -> Curve:
        """What was seen up to that step, that step included."""
        keep = self.steps <= step
        return Curve(self.steps[keep], self.values[keep], self.broke_at)


@dataclass(frozen=True)
class Trend:
    """A straight line through a curve: how much it changes from end to end, and how sure that is."""

    change: float
    error: float

    @property
    def sigmas(self) -> float:
        """The change in units of its standard error; its sign is the direction."""
        if self.error == 0:
            return math.copysign(math.inf, self.change) if self.change else 0.0
        return self.change / self.error


@dataclass(frozen=True)
class ChangePoint:
    """The split of a curve into two levels that fits best."""

    index: int
    before: float
    after: float
    sigmas: float
    """the jump in units of the noise around both levels"""


def read(trace: Trace, *, closely: bool = True) -> Curve:
    """A trace as a curve: its first steps one by one where they are kept so, then its rows; or its rows alone, which
    stand for equal numbers of steps."""
    steps, values = trace.steps, trace.values
    if closely and trace.head is not None and len(trace.head):
        rest = steps > trace.head.steps[-1]
        steps = np.concatenate([trace.head.steps, steps[rest]])
        values = np.concatenate([trace.head.values, values[rest]])
    finite = np.isfinite(values)
    broke_at = None if finite.all() else int(steps[int(np.argmin(finite))])
    return Curve(steps[finite], values[finite].astype(np.float64), broke_at)


def level(values: Floats, share: float = 0.2, *, end: bool = True) -> float:
    """The median of the last (or first) share of the values; at least three of them where there are three."""
    count = max(min(3, len(values)), math.ceil(share * len(values)))
    if not count:
        return math.nan
    return float(np.median(values[-count:] if end else values[:count]))


def median(values: Floats) -> float:
    """Return the median of the finite values; NaN, without a warning, where there are none."""
    finite = np.asarray(values)[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else math.nan


def greatest(values: Floats) -> float:
    """Return the largest of the finite values; NaN, without a warning, where there are none."""
    finite = np.asarray(values)[np.isfinite(values)]
    return float(finite.max()) if finite.size else math.nan


def rows_in_common(*traces: Trace) -> tuple[NDArray[np.integer[Any]], list[NDArray[np.integer[Any]]]]:
    """Return the steps that all traces have and, for each trace, its first row of each of them.

    A recorded step may come twice or out of order; rows are found by value, so that they always pair up.
    """
    common = reduce(np.intersect1d, [trace.steps for trace in traces])
    found = [np.unique(trace.steps, return_index=True) for trace in traces]
    return common, [first[np.searchsorted(steps, common)] for steps, first in found]


def noise(values: Floats) -> float:
    """Standard deviation of the scatter from point to point, whatever the trend and however many outliers."""
    if len(values) < 3:
        return 0.0
    differences = np.diff(values)
    return float(MAD_TO_SIGMA * np.median(np.abs(differences - np.median(differences))) / math.sqrt(2))


def smooth(values: Floats, width: int) -> Floats:
    """Running median over `width` points (odd), shorter at both ends; a lone spike leaves no trace."""
    half = width // 2
    if half == 0 or len(values) < 3:
        return np.asarray(values, np.float64)
    values = np.asarray(values)
    inside = range(half, max(half, len(values) - half))  # all at once: one by one costs more than all else a rule does
    ends = [i for i in range(len(values)) if i not in inside]
    level = np.empty(len(values), np.result_type(values, np.float16))
    level[ends] = [np.median(values[max(0, i - half) : i + half + 1]) for i in ends]
    if inside:
        windows = np.lib.stride_tricks.sliding_window_view(values, 2 * half + 1)
        level[inside.start : inside.stop] = np.median(windows, axis=1)
    return level


def blocks(values: Floats, count: int) -> Floats:
    """Medians of `count` equal stretches (fewer where there are fewer values)."""
    count = min(count, len(values))
    return np.array([np.median(part) for part in np.array_split(values, count)]) if count else np.zeros(0)


def trend(values: Floats, count: int = TREND_BLOCKS) -> Trend:
    """The straight line through the medians of stretches, by least squares, with its standard error."""
    heights = blocks(values, count)
    if len(heights) < 4:
        return Trend(0.0, math.inf)
    at = np.linspace(-0.5, 0.5, len(heights))
    slope = float(at @ heights / (at @ at))
    residual = heights - heights.mean() - slope * at
    spread = math.sqrt(float(residual @ residual) / (len(heights) - 2))
    rounding = float(np.finfo(np.float32).eps * np.abs(heights).max())
    return Trend(slope, max(spread / math.sqrt(float(at @ at)), rounding))


def change_point(values: Floats, least: int = 3) -> ChangePoint | None:
    """The one split into two levels with the smallest squared error, each side at least `least` points long."""
    n = len(values)
    if n < 2 * least:
        return None
    total, squares = np.cumsum(values), np.cumsum(np.square(values))
    at = np.arange(least, n - least + 1)
    left = squares[at - 1] - np.square(total[at - 1]) / at
    right = squares[-1] - squares[at - 1] - np.square(total[-1] - total[at - 1]) / (n - at)
    index = int(at[int(np.argmin(left + right))])
    before, after = float(np.median(values[:index])), float(np.median(values[index:]))
    around = max(noise(values[:index]), noise(values[index:]))
    jump = after - before
    sigmas = jump / around if around else math.copysign(math.inf, jump) if jump else 0.0
    return ChangePoint(index, before, after, sigmas)


@dataclass(frozen=True)
class Divergence:
    """A loss that left its starting level upwards."""

    start: float
    peak: float
    end: float
    best: float
    """the lowest smoothed level before the peak"""
    onset: int
    """the step at which it first stood far above its start, or above what it had reached"""
    nonfinite: bool
    """it ended in NaN or Inf"""

    @property
    def growth(self) -> float:
        """Peak over start; infinite where the start is not positive."""
        return self.peak / self.start if self.start > 0 else math.inf


def divergence(curve: Curve, start: float, factor: float) -> Divergence | None:
    """How the curve rose above `factor` times its start (a positive loss), or None if it never did.

    For a loss that is not positive throughout, the unit is the largest of |start| and the range it had covered
    before, so that a likelihood that passes through zero is not taken for growth.
    """
    values = curve.values
    if len(values) < 2:
        return None
    if values.min() >= 0 and start > 0:
        limit_S = np.full(len(values), factor * start)
    else:
        lowest = np.minimum.accumulate(values)
        unit_S = np.maximum(np.maximum(abs(start), start - lowest), noise(values[: max(3, len(values) // 4)]))
        limit_S = start + factor * unit_S
    above = np.flatnonzero(values > limit_S)
    if not len(above):
        return None
    first = int(above[0])
    return Divergence(
        start=start,
        peak=float(values.max()),
        end=level(values),
        best=float(smooth(values[: first + 1], 5).min()),
        onset=int(curve.steps[first]),
        nonfinite=curve.broke_at is not None and curve.broke_at > curve.steps[first],
    )


def spark(values: Sequence[float] | Floats, points: int = SPARK_POINTS) -> tuple[float, ...]:
    """The curve's shape in a few points: of each stretch the value farthest from the median, so spikes stay."""
    array = np.asarray(values, np.float64)
    array = array[np.isfinite(array)]
    if len(array) <= points:
        return tuple(float(v) for v in array)
    middle = float(np.median(array))
    parts = np.array_split(array, points)
    return tuple(float(part[int(np.argmax(np.abs(part - middle)))]) for part in parts)


def figure(value: float) -> str:
    """A number as a person would write it: three digits, no exponent where none is needed."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
