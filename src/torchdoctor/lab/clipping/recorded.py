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

PARTS = 16
"""Steps that a merged row is taken for: enough for shares to a few per cent of it."""
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

        Of a merged row the least, the mean and the greatest are known; its steps are taken to lie between them so that
        all three hold: evenly where the mean is in the middle, nearly all low where one spike made the greatest.
        """
        low, mean, high = (
            np.asarray(part, np.float64) for part in (self.trace.low, self.trace.values, self.trace.high)
        )
        finite = np.isfinite(low) & np.isfinite(mean) & np.isfinite(high)
        low, mean, high = low[finite], mean[finite], high[finite]
        if self.trace.merged <= 1:
            return mean
        with np.errstate(all="ignore"):
            share = np.clip((mean - low) / (high - low), 1e-3, 1 - 1e-3)
        share = np.where(np.isfinite(share), share, 0.5)
        place = (np.arange(PARTS) + 0.5) / PARTS
        spread_RP = place[None, :] ** ((1 - share) / share)[:, None]
        return (low[:, None] + (high - low)[:, None] * spread_RP).ravel()

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
    norms = recorded.every
    total = float(norms.sum())
    return Cut(
        threshold,
        float((norms > threshold * (1 + 1e-6)).mean()),
        float(np.minimum(norms, threshold).sum()) / total if total else 1.0,
        float(np.median(norms)) / threshold,
    )


def _floor(power: float) -> float:
    scale = 10**DIGITS
    return math.floor(power * scale) / scale
