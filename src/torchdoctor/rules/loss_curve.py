"""The training loss as a cause is judged by it: where it began, where it stands, whether it moved, when it broke."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchdoctor.facts import NonfiniteFact
from torchdoctor.rules import curves
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

WINDOW_SHARE = 0.1
"""First and last tenth of the run: long enough to average out a small batch's noise, short enough to see change."""
STUCK = 0.05
"""A loss that fell by less than a twentieth of where it began has gone nowhere: ln 10 to 2.19 is still chance."""


@dataclass(frozen=True)
class LossCurve:
    """The one training loss of a run, from its first window to its last."""

    curve: curves.Curve
    begin: float
    end: float

    @property
    def fell(self) -> float:
        """Share of the first level that is gone; negative where the loss rose, NaN where nothing is finite."""
        return (self.begin - self.end) / max(abs(self.begin), 1e-12)

    @property
    def stuck(self) -> bool:
        return not self.fell >= STUCK

    @property
    def broke_at(self) -> int | None:
        return self.curve.broke_at

    @property
    def spark(self) -> tuple[float, ...]:
        return curves.spark(self.curve.values)

    def fell_until(self, step: int) -> float:
        """The same share, judged by what was seen up to that step."""
        until = self.curve.until(step)
        end = curves.level(until.values, WINDOW_SHARE) if len(until) else math.nan
        return (self.begin - end) / max(abs(self.begin), 1e-12)


def loss_keys(run: Run) -> list[str]:
    """Keys of the training losses; what no optimizer followed (key "") counts only where there is nothing else."""
    keys = run.keys(LOSS_TRAIN)
    return [k for k in keys if k] or keys


def loss_curve(run: Run) -> LossCurve | None:
    """None where no loss was recorded, or several are trained against each other and "lower" means nothing."""
    keys = loss_keys(run)
    if len(keys) != 1:
        return None
    curve = curves.read(run.scalar(LOSS_TRAIN, keys[0]))
    begin = curves.level(curve.values, WINDOW_SHARE, end=False)
    return LossCurve(curve, begin, curves.level(curve.values, WINDOW_SHARE))


def first_loss(run: Run, key: str) -> tuple[int, float] | None:
    """The very first training loss of that key and its step."""
    head = run.scalar(LOSS_TRAIN, key).first(1)
    return (int(head.steps[0]), float(head.values[0])) if len(head) else None


def broken_at(run: Run) -> int | None:
    """The first step with a NaN or Inf in the loss or the weights: later looks say nothing about a cause.

    Gradients are left out: a gradient scaler overflows them on purpose and skips the step.
    """
    steps = [s for s, f in run.facts_at(NonfiniteFact) if f.role in ("loss", "weight") and f.phase != "validation"]
    loss = loss_curve(run)
    if loss is not None and loss.broke_at is not None:
        steps.append(loss.broke_at)
    return min(steps, default=None)
