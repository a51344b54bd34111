"""What is left between targets and predicted numbers, and whether it follows the predictions. Numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.instruments.evaluating.metrics import Estimate, Floats, quantile, tail
from torchdoctor.instruments.evaluating.ranking import midranks

PARTS = 5
LEAST = 20
"""Samples below which no trend is looked for."""
SHOWN = 2000
"""Points kept for the picture."""


@dataclass(frozen=True)
class Part:
    """Samples with predictions of about the same size, and by how much these are too low."""

    low: float
    high: float
    samples: int
    residual: Estimate
    off: bool
    """beyond chance, all parts taken into account"""


@dataclass(frozen=True)
class Residuals:
    """Of target minus prediction. Against the prediction, not the target: there even the best predictor has a trend."""

    slope: Estimate
    """of targets over predictions: 1 where predictions are neither too timid nor too bold"""
    spread: float
    """rank correlation of the size of residuals with the prediction"""
    spread_chance: float
    parts: list[Part]
    points: list[tuple[float, float]] = field(default_factory=list)
    """(prediction, residual), at most SHOWN"""

    @property
    def words(self) -> list[str]:
        """What there is to say of them; empty where they look like noise."""
        said = []
        if self.slope.low > 1:
            said.append(f"predictions are too timid: targets change {self.slope.value:.3g} times as much as they do")
        elif self.slope.high < 1:
            said.append(f"predictions are too bold: targets change {self.slope.value:.3g} times as much as they do")
        off = [p for p in self.parts if p.off]
        if off and not said:
            worst = max(off, key=lambda p: abs(p.residual.value))
            way = "low" if worst.residual.value > 0 else "high"
            said.append(
                f"predictions from {worst.low:.3g} to {worst.high:.3g} are too {way}, by "
                f"{abs(worst.residual.value):.3g} on average"
            )
        if self.spread_chance < 0.01 and abs(self.spread) > 0.2:
            way = "grows" if self.spread > 0 else "shrinks"
            said.append(f"the error {way} with the predicted value (rank correlation {self.spread:.2f})")
        return said


def follow(target_N: Floats, predicted_N: Floats, level: float) -> Residuals | None:
    """None where there are too few samples, or where all predictions are equal."""
    residual_N = target_N - predicted_N
    if len(target_N) < LEAST or np.ptp(predicted_N) <= 1e-12 * max(1e-300, float(np.abs(predicted_N).max())):
        return None
    stride = max(1, -(-len(target_N) // SHOWN))
    ranks = midranks(predicted_N), midranks(np.abs(residual_N))
    correlation = float(np.corrcoef(*ranks)[0, 1]) if np.ptp(ranks[1]) else 0.0
    chance = 2 * tail(abs(correlation) * math.sqrt(len(target_N) - 1))
    return Residuals(
        slope=_slope(target_N, predicted_N, level),
        spread=correlation,
        spread_chance=chance,
        parts=_parts(predicted_N, residual_N, level),
        points=[(float(p), float(r)) for p, r in zip(predicted_N[::stride], residual_N[::stride], strict=True)],
    )


def _slope(target_N: Floats, predicted_N: Floats, level: float) -> Estimate:
    """Least squares, with an error that allows residuals to spread differently (White 1980)."""
    x, y = predicted_N - predicted_N.mean(), target_N - target_N.mean()
    total = float((x * x).sum())
    slope = float((x * y).sum()) / total
    left = y - slope * x
    error = math.sqrt(float(np.square(x * left).sum()) * len(x) / (len(x) - 2)) / total
    half = quantile(level) * error
    return Estimate(slope, slope - half, slope + half, "normal")


def _parts(predicted_N: Floats, residual_N: Floats, level: float) -> list[Part]:
    order = np.argsort(predicted_N, kind="stable")
    found, chances = [], []
    for held in np.array_split(order, PARTS):
        mean = float(residual_N[held].mean())
        error = float(residual_N[held].std(ddof=1)) / math.sqrt(len(held)) if len(held) > 1 else math.nan
        half = quantile(level) * error
        ends = float(predicted_N[held[0]]), float(predicted_N[held[-1]])
        found.append((*ends, len(held), Estimate(mean, mean - half, mean + half, "normal")))
        chances.append(2 * tail(abs(mean) / error) if error > 0 else float(mean == 0))
    return [Part(*f, chance < 1 - level) for f, chance in zip(found, holm(chances), strict=True)]
