"""How the values of one tensor are spread at each look, read from histograms whose bins are powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from torchdoctor.errors import TorchdoctorError
from torchdoctor.run import Floats, Ints, Run
from torchdoctor.signals import HISTOGRAM_BINS, HISTOGRAM_EXPONENTS

MIDDLE = HISTOGRAM_BINS // 2
"""The bin of exact zeros; positive ones follow it, negative ones stand before it in the opposite order."""
OUTER = 0.99
"""Share of the values other than zero that a tensor's reach holds: the last percent is a tail of a few."""


class Histograms(Protocol):
    """As store.Histograms: counts are (steps, columns, bins) over the bins of signals.histogram_edges."""

    @property
    def steps(self) -> Ints: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> Floats: ...


@dataclass(frozen=True)
class Counted:
    """Histograms that were not read from a file as they are."""

    steps: Ints
    columns: tuple[str, ...]
    counts: Floats


@dataclass(frozen=True)
class Spread:
    """One tensor over its looks; every array has a row a look."""

    steps: Ints
    counts: Floats
    """(steps, bins)"""

    @cached_property
    def total(self) -> Floats:
        """Values that were finite."""
        return self.counts.sum(axis=1)

    @cached_property
    def zeros(self) -> Floats:
        """Share of exact zeros."""
        return self.counts[:, MIDDLE] / np.maximum(self.total, 1)

    @cached_property
    def sizes(self) -> Floats:
        """Share of the values in each bin of magnitude, both signs together."""
        counts = self.counts[:, MIDDLE + 1 :] + self.counts[:, MIDDLE - 1 :: -1]
        return counts / np.maximum(self.total, 1)[:, None]

    @cached_property
    def reach(self) -> Floats:
        """The magnitude within which all but the last percent lie; NaN where there is nothing but zeros."""
        return self.magnitudes(OUTER)

    @cached_property
    def usual(self) -> Floats:
        """The median of the magnitudes other than zero."""
        return self.magnitudes(0.5)

    def magnitudes(self, share: float) -> Floats:
        """Below it lies that share of the values other than zero; within a bin they are taken as even."""
        found = np.full(len(self.steps), np.nan)
        edges = magnitude_edges()
        for at, size_M in enumerate(self.sizes):
            if size_M.sum() > 0:
                below = np.concatenate([[0.0], np.cumsum(size_M)]) / size_M.sum()
                found[at] = np.interp(share, below, edges)
        return found

    @cached_property
    def beyond(self) -> Floats:
        """Share of the values in the last bin, which has no end: how far out they lie is not known."""
        return self.sizes[:, -1]

    @cached_property
    def sides(self) -> tuple[float, float]:
        """Where values may lie: on one side of zero, if none is on the other."""
        below, above = self.counts[:, :MIDDLE].any(), self.counts[:, MIDDLE + 1 :].any()
        return (0.0 if above and not below else -np.inf), (0.0 if below and not above else np.inf)

    def density(self, at: int, places: Floats, width: float) -> Floats:
        """Values other than zero per unit around each place, averaged over the width, of it no more than lies on their
        side of zero; zero where none is finite."""
        counts = self.counts[at].copy()
        counts[MIDDLE] = 0.0
        if not counts.sum():
            return np.zeros(len(places))
        edges = magnitude_edges()
        below = np.concatenate([[0.0], np.cumsum(np.delete(counts, MIDDLE))]) / counts.sum()
        signed = np.concatenate([-edges[::-1], edges[1:]])
        left, right = (np.clip(places + half, *self.sides) for half in (-width / 2, width / 2))
        held = np.interp(right, signed, below) - np.interp(left, signed, below)
        return held / np.maximum(right - left, width / 2)


def largest_known() -> float:
    """Beyond it magnitudes are counted, not told apart."""
    return float(2.0 ** HISTOGRAM_EXPONENTS[1])


def magnitude_edges() -> Floats:
    """Of the bins of magnitude; the last one, which has no end, ends at twice its beginning."""
    low, high = HISTOGRAM_EXPONENTS
    return np.array([0.0, *(2.0**e for e in range(low, high + 2))])


def spread_of(held: Sequence[Histograms], column: str) -> Spread | None:
    """Of one tensor; None where there is none, or nothing of it was ever finite."""
    parts = [(h.steps, h.counts[:, h.columns.index(column)]) for h in held if column in h.columns]
    if not parts:
        return None
    steps, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(steps, kind="stable")
    found = Spread(steps[order], counts[order])
    return found if found.total.any() else None


def read_spreads(run: Run, role: str, most: int = 64) -> list[Histograms]:
    """The histograms of weights, gradients or activations in the run's own folder; none for one that has no folder."""
    path = run.info.get("path")
    if not isinstance(path, str):
        return []
    from torchdoctor.store.reader import read_histograms

    rank = run.info.get("rank")
    try:
        held = read_histograms(path, role, rank if isinstance(rank, int) else 0, most)
    except (TorchdoctorError, OSError):
        return []
    return [_finite(h) for h in held if h.counts.shape[-1] == HISTOGRAM_BINS]


def _finite(held: Histograms) -> Histograms:
    """Counts that a damaged file makes negative or not finite count for nothing; so do tensors of unknown kinds."""
    counts = np.nan_to_num(held.counts, nan=0.0, posinf=0.0, neginf=0.0)
    return Counted(held.steps, held.columns, np.maximum(counts, 0.0))


def changed_most(held: Sequence[Histograms], columns: Sequence[str]) -> str | None:
    """The tensor whose last look differs most from its first; the first of those that are alike."""

    def moved(column: str) -> float:
        spread = spread_of(held, column)
        if spread is None:
            return -1.0
        share_SB = spread.counts / np.maximum(spread.total, 1)[:, None]
        known = np.flatnonzero(spread.total)
        return float(np.abs(share_SB[known[-1]] - share_SB[known[0]]).sum())

    return max(columns, key=moved, default=None)
