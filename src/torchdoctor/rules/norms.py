"""What a series of gradient norms asks of clipping: where a threshold would cut the exceptional steps and no others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.rules import curves
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.hyperparameters.clipping_too_tight import SKIPPED, SUGGESTED

SPIKE = 5.0
"""Norm over the median: recurrent nets without trouble scatter within a few times it (Pascanu et al., 2013)."""
CALM = 2.5
"""Largest norm over the median up to which there is nothing to cut."""
MOVED, SURE = 1.5, 3.0
"""Factor between the ends of the look, and its standard errors, from which the norms still move."""


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
