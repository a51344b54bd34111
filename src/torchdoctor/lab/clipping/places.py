"""Where in a run a threshold cuts: single spikes, or one stretch at its beginning or its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchdoctor.lab.clipping.recorded import ALIKE, Recorded
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.norms import CALM

AROUND = 5
"""Looks on each side that a spike stands out of: their median bears two spikes close by."""
APART = 0.25
"""Share of the smaller of what is cut and what is not that may lie on the wrong side of a stretch's border."""
FRACTIONS = {
    1 / 2: "half",
    1 / 3: "third",
    2 / 3: "two thirds",
    1 / 4: "quarter",
    3 / 4: "three quarters",
    0.1: "tenth",
}
NEARLY = 0.015
"""Distance at which a share goes by the name of a fraction."""


@dataclass(frozen=True)
class Places:
    spikes: int
    """rows that are cut and stand out of those before and after them"""
    stretch: str
    """"", or such as "the last third": nearly all that is cut, spikes apart, lies in it, and nearly all of it is cut"""
    beside: int
    """spikes outside the stretch"""


def find_places(recorded: Recorded, threshold: float) -> Places:
    trace = recorded.trace
    known = np.isfinite(trace.high) & np.isfinite(trace.values)
    high, values = np.asarray(trace.high[known], np.float64), np.asarray(trace.values[known], np.float64)
    limit = threshold * (1 + ALIKE)
    spike = (high > limit) & _stands_out(high, values)
    row = values if trace.merged > 1 else high
    inside, share, first = _find_stretch((row > limit) & ~spike, recorded.weights[known])
    stretch = f"the {'first' if first else 'last'} {_name(share)}" if share else ""
    return Places(int(spike.sum()), stretch, int((spike & ~inside).sum()))


def _stands_out(high: Floats, values: Floats) -> np.ndarray:
    """Far above the rows before and far above those after: what only rises or falls never is, nor are the ends."""
    if len(high) < 3:
        return np.zeros(len(high), bool)
    none = np.full(AROUND, np.nan)
    around = np.lib.stride_tricks.sliding_window_view(np.concatenate([none, values, none]), AROUND)
    before, after = np.nanmedian(around[1 : len(high) - 1], axis=1), np.nanmedian(around[AROUND + 2 : -1], axis=1)
    found = high[1:-1] > CALM * np.maximum(before, after)
    return np.concatenate([[False], found, [False]])


def _find_stretch(cut: np.ndarray, weights: Floats) -> tuple[np.ndarray, float, bool]:
    """The rows of the stretch from the beginning or to the end that fits the cuts best, its share of the steps, and
    whether it is at the beginning; no rows and zero where none fits well."""
    total, inside = float(weights.sum()), float(weights[cut].sum())
    nothing = np.zeros(len(cut), bool), 0.0, False
    if not 0 < inside < total:
        return nothing
    gained = np.concatenate([[0.0], np.cumsum(np.where(cut, weights, -weights))])
    wrong_first, wrong_last = inside - gained, inside - (gained[-1] - gained)
    first = bool(wrong_first.min() <= wrong_last.min())
    border = int(np.argmin(wrong_first if first else wrong_last))
    if min(wrong_first.min(), wrong_last.min()) > APART * min(inside, total - inside):
        return nothing
    rows = np.arange(len(cut)) < border if first else np.arange(len(cut)) >= border
    return rows, float(weights[rows].sum()) / total, first


def _name(share: float) -> str:
    nearest = min(FRACTIONS, key=lambda fraction: abs(fraction - share))
    return FRACTIONS[nearest] if abs(nearest - share) <= NEARLY else f"{100 * share:.2g}%"
