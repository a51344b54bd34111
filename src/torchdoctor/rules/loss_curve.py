"""The training loss as rules look at it: where it began, where it stands, whether it moved, when it broke."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import NonfiniteFact
from torchdoctor.run import Floats, Ints, Run
from torchdoctor.signals import LOSS_TRAIN

WINDOW_SHARE = 0.1
"""First and last tenth of the run: long enough to average out a small batch's noise, short enough to see change."""
WINDOW_LEAST, WINDOW_MOST = 3, 100
STUCK = 0.05
"""A loss that fell by less than a twentieth of where it began has gone nowhere: ln 10 to 2.19 is still chance."""
SPARK_POINTS = 40


@dataclass(frozen=True)
class LossCurve:
    """The one training loss of a run. `steps` and `values` hold its finite rows only."""

    steps: Ints
    values: Floats
    begin: float
    """median over the first window"""
    end: float
    """median over the last window"""
    nonfinite_at: int | None

    @property
    def fell(self) -> float:
        """Share of the first level that is gone; negative where the loss rose."""
        return (self.begin - self.end) / max(abs(self.begin), 1e-12)

    @property
    def stuck(self) -> bool:
        return self.fell < STUCK

    @property
    def spark(self) -> tuple[float, ...]:
        return thin(self.values)


def loss_keys(run: Run) -> list[str]:
    """Keys of the training losses; what no optimizer followed (key "") counts only where there is nothing else."""
    keys = run.keys(LOSS_TRAIN)
    return [k for k in keys if k] or keys


def loss_curve(run: Run) -> LossCurve | None:
    """None where no loss was recorded, or several are trained against each other and "lower" means nothing."""
    keys = loss_keys(run)
    if len(keys) != 1:
        return None
    trace = run.scalar(LOSS_TRAIN, keys[0])
    finite = np.isfinite(trace.values)
    if not finite.any():
        first = int(trace.steps[0]) if len(trace) else None
        nothing = np.zeros(0)
        return LossCurve(np.zeros(0, np.int64), nothing, float("nan"), float("nan"), first)
    broken = np.flatnonzero(~finite)
    values, steps = trace.values[finite], trace.steps[finite]
    window = int(np.clip(len(values) * WINDOW_SHARE, WINDOW_LEAST, WINDOW_MOST))
    return LossCurve(
        steps,
        values,
        float(np.median(values[:window])),
        float(np.median(values[-window:])),
        int(trace.steps[broken[0]]) if len(broken) else None,
    )


def first_loss(run: Run, key: str) -> tuple[int, float] | None:
    """The very first training loss of that key and its step."""
    head = run.scalar(LOSS_TRAIN, key).first(1)
    return (int(head.steps[0]), float(head.values[0])) if len(head) else None


def broken_at(run: Run) -> int | None:
    """The first step with a NaN or Inf in the loss or the weights: later looks say nothing about a cause.

    Gradients are left out: a gradient scaler overflows them on purpose and skips the step.
    """
    steps = [s for s, f in run.facts_at(NonfiniteFact) if f.role in ("loss", "weight")]
    curve = loss_curve(run)
    if curve is not None and curve.nonfinite_at is not None:
        steps.append(curve.nonfinite_at)
    return min(steps, default=None)


def thin(values: Floats, points: int = SPARK_POINTS) -> tuple[float, ...]:
    """At most `points` of the values, evenly spaced, for a sparkline."""
    if len(values) <= points:
        return tuple(float(v) for v in values)
    at = np.linspace(0, len(values) - 1, points).round().astype(int)
    return tuple(float(values[i]) for i in at)
