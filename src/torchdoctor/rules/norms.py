"""What a series of gradient norms asks of clipping: where a threshold would cut the exceptional steps and no others;
and how many steps a threshold has cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.rules import curves
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.hyperparameters.clipping_too_tight import SKIPPED, SUGGESTED
from torchdoctor.run import Trace

SPIKE = 5.0
"""Norm over the median: recurrent nets without trouble scatter within a few times it (Pascanu et al., 2013)."""
CALM = 2.5
"""Largest norm over the median up to which there is nothing to cut."""
MOVED, SURE = 1.5, 3.0
"""Factor between the ends of the look, and its standard errors, from which the norms still move."""
ROUNDING = 1e-3
"""Of a count of steps that comes from a mean."""


@dataclass(frozen=True)
class Norms:
    """Norms of the gradient, one a step, as they were without clipping."""

    kept: Floats
    """those that are finite"""
    basis: Floats
    """those that the recommendation rests on: without the first, and where the norms move without the first half"""
    recommended: float
    median: float
    percentile_95: float
    trend: str
    """"steady", "falling" or "rising\""""
    change: float
    """level at the end over level at the beginning"""
    broke_at: int | None
    """the first row whose norm was NaN or Inf"""

    @property
    def largest(self) -> float:
        return float(self.basis.max())

    @property
    def spikes(self) -> int:
        """Steps with more than five times the median."""
        return int((self.basis > SPIKE * self.median).sum())

    @property
    def needed(self) -> bool:
        """Whether single steps stand out so far that cutting them makes a difference."""
        return self.broke_at is not None or self.largest > CALM * self.median


@dataclass(frozen=True)
class Clipped:
    """Share of the steps that clipping cut: one number where each step is known, else bounds and what is likely."""

    least: float
    most: float
    likely: float


def read_clipped(norm: Trace, threshold: Trace) -> Clipped | None:
    """None where no step has both a norm and a threshold. A norm that is not finite is cut: it is not below any."""
    _, at, limit = np.intersect1d(norm.steps, threshold.steps, return_indices=True)
    if not len(at):
        return None
    rows = [np.asarray(part[at], np.float64) for part in (norm.low, norm.values, norm.high)]
    with np.errstate(invalid="ignore", over="ignore"):  # of what is not finite, which is counted apart
        least = float(_fewest(*rows, threshold.high[limit], norm.merged).mean()) / norm.merged
        most = float(_most(*rows, threshold.low[limit], norm.merged).mean()) / norm.merged
    ends = [(part(norm), part(threshold)) for part in (Trace.first, Trace.last)] if norm.merged > 1 else []
    seen = [_cut_one_by_one(*pair) for pair in ends if pair[0].merged == pair[1].merged == 1]
    likely = float(np.concatenate(seen).mean()) if any(map(len, seen)) else (least + most) / 2
    return Clipped(least, most, float(np.clip(likely, least, most)))


def _cut_one_by_one(norm: Trace, threshold: Trace) -> np.ndarray:
    _, at, limit = np.intersect1d(norm.steps, threshold.steps, return_indices=True)
    return ~(norm.values[at] <= threshold.values[limit])


def _fewest(low: Floats, mean: Floats, high: Floats, limit: Floats, steps: int) -> Floats:
    """Steps of each merged row that must lie above: as few as make its mean, each as great as the greatest."""
    known = np.isfinite(mean) & np.isfinite(high)
    room = np.where(known & (high > limit), high - limit, 1.0)
    needed = np.ceil(steps * np.where(known, mean - limit, 0.0) / room - ROUNDING)
    return np.select([low > limit, high <= limit], [steps, 0], np.clip(needed, 1, steps))


def _most(low: Floats, mean: Floats, high: Floats, limit: Floats, steps: int) -> Floats:
    """Steps of each merged row that can lie above: the others as small as the least, one as great as the greatest."""
    known = np.isfinite(mean) & np.isfinite(high) & (low < limit) & (limit < high)
    room = np.where(known, limit - low, 1.0)
    left = np.where(known, steps * (mean - low) - high + limit, float(steps))
    possible = np.floor(left / room + ROUNDING)
    return np.select([low > limit, high <= limit, ~known], [steps, 0, steps], np.clip(possible, 1, max(1, steps - 1)))


def read_norms(norms: Floats) -> Norms | None:
    """None where no norm is finite and above zero."""
    finite = np.isfinite(norms)
    broke_at = None if finite.all() else int(np.argmin(finite))
    kept = norms[finite]
    if not len(kept) or not (kept > 0).any():
        return None
    settled = kept[int(SKIPPED * len(kept)) :]
    trend, change = _course(settled)
    basis = settled if trend == "steady" else settled[len(settled) // 2 :]
    median, high = float(np.median(basis)), float(np.percentile(basis, SUGGESTED))
    recommended = float(f"{min(high, SPIKE * median) if median > 0 else high:.2g}")
    return Norms(kept, basis, recommended, median, high, trend, change, broke_at)


def _course(norms: Floats) -> tuple[str, float]:
    logs = np.log(np.maximum(norms, np.finfo(np.float64).tiny))
    line = curves.trend(logs)
    change = math.exp(np.clip(line.change, -50, 50)) if math.isfinite(line.error) else 1.0
    if line.sigmas < -SURE and change < 1 / MOVED:
        return "falling", change
    if line.sigmas > SURE and change > MOVED:
        return "rising", change
    return "steady", change
