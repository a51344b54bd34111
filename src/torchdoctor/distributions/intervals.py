"""Confidence intervals of a mean and of a median, from few measurements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.distributions.binomial import at_most
from torchdoctor.distributions.student import t_quantile


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's; infinitely wide for a single value."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if len(data) < 2:
        return -np.inf, np.inf
    half = t_quantile(0.5 + confidence / 2, len(data) - 1) * float(data.std(ddof=1)) / np.sqrt(len(data))
    return mean - half, mean + half


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between two of the values, whatever their distribution; from the least to the largest if they are few."""
    data = np.sort(np.asarray(values, dtype=np.float64))
    left = 0
    while left + 1 < len(data) // 2 and at_most(left + 1, len(data), 0.5) <= (1 - confidence) / 2:
        left += 1
    return float(data[left]), float(data[len(data) - 1 - left])
