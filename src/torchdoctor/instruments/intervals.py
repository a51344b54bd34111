"""Confidence intervals of a mean and of a median, from few measurements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.rules.binomial import at_most

GRID = 4001


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's; infinitely wide for a single value."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if len(data) < 2:
        return -np.inf, np.inf
    half = t_quantile(len(data) - 1, 0.5 + confidence / 2) * float(data.std(ddof=1)) / np.sqrt(len(data))
    return mean - half, mean + half


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between two of the values, whatever their distribution; from the least to the largest if they are few."""
    data = np.sort(np.asarray(values, dtype=np.float64))
    left = 0
    while left + 1 < len(data) // 2 and at_most(left + 1, len(data), 0.5) <= (1 - confidence) / 2:
        left += 1
    return float(data[left]), float(data[len(data) - 1 - left])


def t_quantile(freedom: int, probability: float) -> float:
    """Of Student's distribution: with t = sqrt(freedom) tan(angle) its density is a power of the cosine."""
    angles = np.linspace(0.0, np.pi / 2, GRID)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = np.interp(2 * abs(probability - 0.5), mass / mass[-1], angles)
    return float(np.sign(probability - 0.5) * np.sqrt(freedom) * np.tan(angle))
