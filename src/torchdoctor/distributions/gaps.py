"""NumPy's statistics over measurements with gaps, where a slice without any number is NaN and warns nobody.

NumPy's own functions warn of such a slice ("All-NaN slice encountered") through the warnings of the process, which is
the user's training. Changing its filters for the time of a call would be seen by the user's other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def nanmedian(values: ArrayLike, axis: int | None = None) -> Any:
    return _over_numbers(np.nanmedian, values, axis)


def nanmean(values: ArrayLike, axis: int | None = None) -> Any:
    return _over_numbers(np.nanmean, values, axis)


def nanstd(values: ArrayLike, axis: int | None = None) -> Any:
    return _over_numbers(np.nanstd, values, axis)


def nanmin(values: ArrayLike, axis: int | None = None) -> Any:
    return _over_numbers(np.nanmin, values, axis)


def nanmax(values: ArrayLike, axis: int | None = None) -> Any:
    return _over_numbers(np.nanmax, values, axis)


def _over_numbers(statistic: Callable[..., Any], values: ArrayLike, axis: int | None) -> Any:
    """Apply a statistic along an axis, giving NaN for slices that are empty or hold no number."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    gaps = np.isnan(array).all(axis=axis)  # True for an empty slice, too
    if axis is None:
        return np.float64("nan") if gaps else statistic(array)
    if not array.shape[axis]:
        return np.full(gaps.shape, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        found = statistic(np.where(np.expand_dims(gaps, axis), 0.0, array), axis=axis)
    return np.where(gaps, np.nan, found)
