"""The norms of a recorded run before any clipping, and what a threshold does to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np

from torchdoctor.plots.chart import tell_when
from torchdoctor.report.text import clean
from torchdoctor.rules import movement
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.hyperparameters.clipping_too_tight import FAR_BELOW
from torchdoctor.rules.norms import Norms, read_norms
from torchdoctor.run import HISTORY_ROWS, Run, Trace
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD
from torchdoctor.summary import gradient_norm

PARTS = 256
"""Looks that a merged row is taken for, at most: up to half a million of them one spike then counts as one."""
ALIKE = 1e-6
"""Share by which a norm that a script has clipped may lie above its own threshold."""
DIGITS = 2
"""Of a threshold's logarithm: a step of it is 2 %."""
EXCEPTIONAL = 0.1
"""Share of cut steps up to which only exceptional ones are."""
HIGH = 0.95
"""Share of the steps that a suggestion for the whole run leaves alone."""
LEAST = float(np.finfo(np.float32).tiny)
"""Below it a norm is what rounding has left of none."""


@dataclass(frozen=True)
class Recorded:
    """The norms of a run before any clipping, as far as they were looked at."""

    trace: Trace
    before: bool
    """the run clips, and these are the norms before it"""
    in_use: float | None
    steps: int
    script: str
    adaptive: bool
    """the optimizer divides the gradient's size out, as Adam does"""

    @cached_property
    def weights(self) -> Floats:
        """Steps that each row stands for. Looks are dense at first and rare later: halfway to its neighbours each; a
        merged row for all since the row before it."""
        at, merged = self.trace.steps.astype(np.float64), self.trace.merged
        if len(at) < 2:
            return np.full(len(at), float(merged))
        if merged == 1:
            return np.diff(np.concatenate([[at[0] - 0.5], (at[1:] + at[:-1]) / 2, [at[-1] + 0.5]]))
        head = self.trace.head
        begin = float(head.steps[0]) if head is not None and len(head) else at[0] - merged + 1
        return np.diff(np.concatenate([[begin - 1], at]))

    @cached_property
    def _parts(self) -> tuple[Floats, Floats]:
        """Norms in the order of their steps and the steps that each stands for; those not finite are left out.

        Of a merged row the least, the mean and the greatest are known: one look is the least, one the greatest, and the
        others lie evenly around what is left for their mean, as far as the nearer of the two. So a single spike counts
        as one.
        """
        low, mean, high = (
            np.asarray(part, np.float64) for part in (self.trace.low, self.trace.values, self.trace.high)
        )
        finite = np.isfinite(low) & np.isfinite(mean) & np.isfinite(high)
        low, mean, high, weights = low[finite], mean[finite], high[finite], self.weights[finite]
        looks = min(self.trace.merged, PARTS)
        if looks == 1:
            return mean, weights
        middle = np.clip((looks * mean - low - high) / max(looks - 2, 1), low, high)
        reach = np.minimum(middle - low, high - middle)
        spread_RP = middle[:, None] + reach[:, None] * np.linspace(-1.0, 1.0, looks - 2)
        norms_RP = np.concatenate([low[:, None], spread_RP, high[:, None]], axis=1)
        return norms_RP.ravel(), np.repeat(weights / looks, looks)

    @cached_property
    def order(self) -> tuple[Floats, Floats, Floats]:
        """Norms from the least to the greatest; steps and length of the least so many of them, from none to all."""
        norms, weights = self._parts
        order = np.argsort(norms, kind="stable")
        norms, weights = norms[order], weights[order]
        return norms, _running(weights), _running(weights * norms)

    def quantile(self, share: float) -> float:
        """The norm that so many of the steps do not exceed."""
        norms, steps, _ = self.order
        return float(norms[min(int(np.searchsorted(steps[1:], share * steps[-1])), len(norms) - 1)])

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def largest(self) -> float:
        return float(self.order[0][-1])

    @cached_property
    def norms(self) -> Norms | None:
        """Read step by step, each step with the norm that stands for it."""
        norms, weights = self._parts
        if not len(norms):
            return None
        ends = np.cumsum(weights)
        count = min(max(round(ends[-1]), 1), PARTS * HISTORY_ROWS)
        at = np.searchsorted(ends, (np.arange(count) + 0.5) * ends[-1] / count)
        return read_norms(norms[np.minimum(at, len(norms) - 1)])

    @cached_property
    def suggested(self) -> float | None:
        """A threshold that cuts the exceptional steps of the whole run and no others; None where there is none. Where
        the norms fall, that of the second half cuts much of the first."""
        norms = self.norms
        assert norms is not None  # read gives none else
        tried = [norms.recommended]
        if norms.recommended < LEAST:
            return None
        if norms.trend != "falling":  # the first steps, which it leaves out, count here
            tried.append(float(f"{self.quantile(HIGH):.2g}"))
        return next((t for t in tried if t >= LEAST and cut(self, t).share <= EXCEPTIONAL), None)

    @cached_property
    def looks(self) -> int:
        """Norms that were recorded, as far as is known."""
        return min(len(self.trace) * self.trace.merged, max(self.steps, 1))

    @cached_property
    def broken(self) -> int:
        """Rows whose norm was NaN or Inf."""
        return int((~np.isfinite(self.trace.values)).sum())

    @cached_property
    def broke(self) -> str:
        """When the norm was NaN or Inf; nothing where it never was."""
        return tell_when(self.trace, ~np.isfinite(self.trace.values))

    @cached_property
    def span(self) -> tuple[float, float]:
        """Powers of ten that the slider goes through."""
        known = self.order[0][self.order[0] > 0]
        ends = [v for v in (self.in_use, float(known[0]) / 2, float(known[-1]) * 1.5) if v and math.isfinite(v)]
        low = min(*ends, (self.median or float(known[0])) / (2 * FAR_BELOW))
        return _floor(math.log10(low)), -_floor(-math.log10(max(ends)))


@dataclass(frozen=True)
class Cut:
    """What one threshold does to them."""

    threshold: float
    share: float
    """of the steps that are cut"""
    kept: float
    """of the length of all gradients together"""
    excess: float
    """typical norm over the threshold"""


def read(run: Run) -> Recorded | None:
    """None where the run has no norms above zero."""
    norm, threshold = run.scalar(CLIP_NORM), run.scalar(CLIP_THRESHOLD)
    before = bool(len(norm)) and bool(len(threshold))
    if not before:
        norm = gradient_norm(run)
    used = threshold.values[np.isfinite(threshold.values) & (threshold.values > 0)] if before else ()
    argv = run.info.get("argv")
    script = clean(PurePath(str(argv[0])).name) if isinstance(argv, list) and argv else "train.py"
    in_use = float(used[-1]) if len(used) else None
    found = Recorded(norm, before, in_use, run.steps, script, bool(run.optimizers) and movement.is_scale_free(run))
    return found if found.norms is not None else None


def cut(recorded: Recorded, threshold: float) -> Cut:
    share, kept = cut_at(recorded, np.array([threshold]))
    return Cut(threshold, float(share[0]), float(kept[0]), recorded.median / threshold)


def cut_at(recorded: Recorded, thresholds: Floats) -> tuple[Floats, Floats]:
    """Share of the steps that each of them cuts, and what it leaves of the length of all gradients together."""
    norms, steps, length = recorded.order
    below = np.searchsorted(norms, thresholds * (1 + ALIKE), side="right")
    share = np.where(below < len(norms), 1 - steps[below] / steps[-1], 0.0)
    return share, (length[below] + thresholds * share * steps[-1]) / length[-1]


def _running(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _floor(power: float) -> float:
    scale = 10**DIGITS
    return math.floor(power * scale) / scale
