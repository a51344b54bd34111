"""Which columns of a batch are constant up to rounding: one answer for rules, checks and instruments."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mask = NDArray[np.bool_]

RESOLUTION = {"float64": 2.3e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.9e-3}
"""Distance of neighbouring numbers over their size, by type; whole numbers have none."""
ROUNDINGS = 4
"""Steps of that size within which the values of a constant column may lie after some arithmetic."""
MOMENTS = 1e-6
"""Standard deviation over mean that sums in single precision leave of a constant column."""


def is_constant(low: ArrayLike, high: ArrayLike, dtype: str) -> Mask:
    """Return for each column whether its least and greatest values differ by rounding alone."""
    low_F, high_F = np.asarray(low, np.float64), np.asarray(high, np.float64)
    size_F = np.maximum(np.abs(low_F), np.abs(high_F))
    room = ROUNDINGS * RESOLUTION.get(dtype.removeprefix("torch."), 0.0)
    with np.errstate(invalid="ignore"):
        return np.isfinite(size_F) & (low_F <= high_F) & (high_F - low_F <= room * size_F)


def varies(mean: ArrayLike, std: ArrayLike) -> Mask:
    """Return for each column whether its standard deviation is finite and more than rounding makes of a constant.

    Where the least and greatest values are known, `is_constant` is the better test.
    """
    mean_F, std_F = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    return np.isfinite(std_F) & (std_F > MOMENTS * np.maximum(np.abs(mean_F), 1e-12))
