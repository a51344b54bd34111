"""The norms of a recorded run before any clipping, and what a threshold does to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np

from torchdoctor.report.text import clean
from torchdoctor.rules import movement
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.hyperparameters.clipping_too_tight import FAR_BELOW
from torchdoctor.rules.norms import Norms, read_norms
from torchdoctor.run import Run, Trace
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD, GRADIENT_GLOBAL_L2

PARTS = 256
"""Steps that a merged row is taken for, at most: up to half a million steps one spike then counts as one."""
ALIKE = 1e-6
"""Share by which a norm that a script has clipped may lie above its own threshold."""
DIGITS = 2
"""Of a threshold's logarithm: a step of it is 2 %."""


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
    def every(self) -> Floats:
        """Norms step by step, those that are not finite left out.

        Of a merged row the least, the mean and the greatest are known: one step is the least, one the greatest, and the
        others lie evenly around what is left for their mean, as far as the nearer of the two. So a single spike counts
        as one.
        """
        low, mean, high = (
            np.asarray(part, np.float64) for part in (self.trace.low, self.trace.values, self.trace.high)
        )
        finite = np.isfinite(low) & np.isfinite(mean) & np.isfinite(high)
        low, mean, high = low[finite], mean[finite], high[finite]
        steps = min(self.trace.merged, PARTS)
        if steps < 3:
            return mean
        middle = np.clip((steps * mean - low - high) / (steps - 2), low, high)
        reach = np.minimum(middle - low, high - middle)
        spread_RP = middle[:, None] + reach[:, None] * np.linspace(-1.0, 1.0, steps - 2)
        return np.concatenate([low[:, None], spread_RP, high[:, None]], axis=1).ravel()

    @cached_property
    def ordered(self) -> Floats:
        return np.sort(self.every)

    @cached_property
    def sums(self) -> Floats:
        """Of the least so many of them, from none to all."""
        return np.concatenate([[0.0], np.cumsum(self.ordered)])

    @cached_property
    def norms(self) -> Norms | None:
        return read_norms(self.every)

    @cached_property
    def broken(self) -> int:
        """Rows whose norm was NaN or Inf."""
        return int((~np.isfinite(self.trace.values)).sum())

    @cached_property
    def span(self) -> tuple[float, float]:
        """Powers of ten that the slider goes through."""
        known = self.every[self.every > 0]
        ends = [v for v in (self.in_use, float(known.min()) / 2, float(known.max()) * 1.5) if v and math.isfinite(v)]
        low = min(*ends, float(np.median(known)) / (2 * FAR_BELOW))
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
        keys = run.keys(GRADIENT_GLOBAL_L2)
        norm = max((run.scalar(GRADIENT_GLOBAL_L2, key) for key in keys), key=len, default=Trace.empty())
    used = threshold.values[np.isfinite(threshold.values) & (threshold.values > 0)] if before else ()
    argv = run.info.get("argv")
    script = clean(PurePath(str(argv[0])).name) if isinstance(argv, list) and argv else "train.py"
    in_use = float(used[-1]) if len(used) else None
    found = Recorded(norm, before, in_use, run.steps, script, bool(run.optimizers) and movement.is_scale_free(run))
    return found if found.norms is not None else None


def cut(recorded: Recorded, threshold: float) -> Cut:
    share, kept = cut_at(recorded, np.array([threshold]))
    return Cut(threshold, float(share[0]), float(kept[0]), float(np.median(recorded.ordered)) / threshold)


def cut_at(recorded: Recorded, thresholds: Floats) -> tuple[Floats, Floats]:
    """Share of the steps that each of them cuts, and what it leaves of the length of all gradients together."""
    count = len(recorded.ordered)
    below = np.searchsorted(recorded.ordered, thresholds * (1 + ALIKE), side="right")
    return 1 - below / count, (recorded.sums[below] + thresholds * (count - below)) / recorded.sums[-1]


def _floor(power: float) -> float:
    scale = 10**DIGITS
    return math.floor(power * scale) / scale
