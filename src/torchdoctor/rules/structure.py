"""Whether what is left of the loss is structure that the model misses, or noise: do alike samples err alike?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import LayersFact
from torchdoctor.rules import curves
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, RESIDUAL_AGREEMENT

AGREE, SURE = 0.2, 4.0
"""Correlation of neighbours' residuals, and its standard errors. Noise gives none; a fifth is structure that is left
over, and four standard errors are no chance over the looks of a run."""
MIN_LOOKS = 6
ARRIVED = 0.1
"""Of the whole fall of the loss: the part that may still be ahead where it counts as arrived at its last level."""


@dataclass(frozen=True)
class Agreement:
    """Of the residuals of neighbours, over the looks since the loss arrived at its last level."""

    mean: float
    sigmas: float

    @property
    def is_structure(self) -> bool:
        return self.mean >= AGREE and self.sigmas >= SURE


def agreement(run: Run) -> Agreement | None:
    """None where there are too few looks."""
    trace = run.scalar(RESIDUAL_AGREEMENT)
    values = trace.values[trace.steps >= _arrived_at(run)]
    if np.isfinite(values).sum() < MIN_LOOKS:
        values = trace.values[len(trace) // 2 :]
    values = values[np.isfinite(values)].astype(np.float64)
    if len(values) < MIN_LOOKS:
        return None
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return Agreement(min(mean, float(values[-3:].mean())), mean / error if error else math.inf)


def is_linear(run: Run) -> bool:
    """Whether the model has one layer of weights only, so that there is nothing to widen."""
    layers = run.last_fact(LayersFact)
    return layers is not None and len(layers.layers) == 1


def _arrived_at(run: Run) -> int:
    """The step from which on the loss stands at its last level; a third of the run where it never stood higher."""
    keys = run.keys(LOSS_TRAIN)
    curve = curves.read(run.scalar(LOSS_TRAIN, keys[0]), closely=False) if keys else None
    if curve is None or len(curve) < MIN_LOOKS:
        return run.steps // 3
    heights = curves.smooth(curve.values, 2 * (len(curve) // 40) + 1)
    end = curves.level(curve.values, 1 / 3)
    ahead = np.flatnonzero(heights > end + ARRIVED * max(float(heights.max()) - end, 0.0))
    return min(int(curve.steps[ahead[-1]]) if len(ahead) else 0, run.steps // 3)
