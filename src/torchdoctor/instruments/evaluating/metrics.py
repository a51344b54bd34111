"""Figures of merit with their uncertainty, from plain arrays: no torch in here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = 1000
"""Of a bootstrap: the ends of a 95 % interval then hang on the 25 outermost draws of each side."""
CELLS = 2_000_000
"""Numbers that one bootstrap may draw; with more cells there are fewer draws, but never below LEAST_DRAWS."""
LEAST_DRAWS = 200
BLOCKS = 2000
"""Rows are summed in so many random blocks before they are drawn: the same spread at a bounded price."""
SEED = 0
"""Of the draws, so that the same predictions give the same intervals. They come from a generator of their own."""


@dataclass(frozen=True)
class Estimate:
    """A number and the interval that holds it with the level that was asked for."""

    value: float
    low: float
    high: float
    how: str
    """the method of the interval: Wilson, bootstrap, DeLong, normal; empty where there is none"""

    @classmethod
    def bare(cls, value: float) -> Estimate:
        return cls(value, math.nan, math.nan, "")


def quantile(level: float) -> float:
    """Standard deviations to either side that hold this share of a normal distribution."""
    return NormalDist().inv_cdf(0.5 + level / 2)


def tail(z: float) -> float:
    """The share of a normal distribution above."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def wilson(hits: float, count: float, level: float = 0.95) -> Estimate:
    """A share and its score interval, which also holds for few draws and near 0 and 1 (Wilson 1927)."""
    if count <= 0:
        return Estimate(math.nan, math.nan, math.nan, "Wilson")
    z, share = quantile(level), float(hits / count)
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), "Wilson")


def effective(right_N: Floats, count_N: Floats) -> float:
    """As how many independent elements those of the samples count: tokens of a text are right or wrong together."""
    total, samples = float(count_N.sum()), int((count_N > 0).sum())
    share = float(right_N.sum()) / max(total, 1.0)
    if samples == total:
        return total
    if samples < 2 or share in (0.0, 1.0):
        return float(samples)
    variance = samples / (samples - 1) * float(np.square(right_N - share * count_N).sum()) / total**2
    return float(min(total, max(1.0, share * (1 - share) / max(variance, 1e-300))))


def confuse(label_E: Ints, predicted_E: Ints, classes: int) -> Ints:
    """(C, C): rows are what is true, columns what was predicted."""
    flat = np.bincount(label_E * classes + predicted_E, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.int64)


@dataclass(frozen=True)
class Counts:
    """Of each class: how often it is true, how often it is named, and how often both."""

    support: Floats
    predicted: Floats
    right: Floats

    @classmethod
    def of(cls, label_E: Ints, predicted_E: Ints, classes: int) -> Counts:
        hit_E = label_E == predicted_E
        counted = (np.bincount(a, minlength=classes) for a in (label_E, predicted_E, label_E[hit_E]))
        return cls(*(c.astype(np.float64) for c in counted))

    @property
    def precision(self) -> Floats:
        return self.right / np.where(self.predicted > 0, self.predicted, np.nan)

    @property
    def recall(self) -> Floats:
        return self.right / np.where(self.support > 0, self.support, np.nan)

    @property
    def f1(self) -> Floats:
        both = self.support + self.predicted
        return 2 * self.right / np.where(both > 0, both, np.nan)


def f1_estimate(right: float, support: float, predicted: float, level: float) -> Estimate:
    """F1 is 2q / (1 + q) of the share q of hits among all that are true or named, and that is a share as any other."""
    union = wilson(right, support + predicted - right, level)
    ends = (2 * q / (1 + q) for q in (union.value, union.low, union.high))
    return Estimate(*ends, "Wilson")


def judge_confusion(label_E: Ints, predicted_E: Ints, classes: int, size: float, level: float) -> dict[str, Estimate]:
    """Balanced accuracy, mean F1 and Matthews' correlation, their intervals by drawing the cells of the confusion anew.

    `size` is the number of independent elements. A class that is neither true nor named anywhere is left out.
    """
    cell_U, count_U = np.unique(label_E * classes + predicted_E, return_counts=True)
    true_U, named_U = np.divmod(cell_U, classes)
    kept_C, at_U = np.unique(np.concatenate([true_U, named_U]), return_inverse=True)
    true_U, named_U = at_U[: len(cell_U)], at_U[len(cell_U) :]

    def figures(weight_DU: Floats) -> dict[str, Floats]:
        return _figures(weight_DU, true_U, named_U, len(kept_C))

    draws = max(LEAST_DRAWS, min(DRAWS, CELLS // max(1, len(cell_U))))
    generator = np.random.default_rng(SEED)
    drawn = generator.multinomial(max(1, round(size)), count_U / count_U.sum(), size=draws)
    found, spread = figures(count_U[None].astype(np.float64)), figures(drawn.astype(np.float64))
    if (true_U == named_U).all():
        # what is drawn from hits alone is always right, however few they are
        low = wilson(size, size, level).low
        return {name: Estimate(float(found[name][0]), low, 1.0, "Wilson") for name in found}
    return {name: between(float(found[name][0]), spread[name], level) for name in found}


def _figures(weight_DU: Floats, true_U: Ints, named_U: Ints, classes: int) -> dict[str, Floats]:
    """The same for many weightings of the cells at once."""
    support_DC, named_DC = _sum_by(weight_DU, true_U, classes), _sum_by(weight_DU, named_U, classes)
    hit_U = true_U == named_U
    right_DC = _sum_by(weight_DU[:, hit_U], true_U[hit_U], classes)
    total_D = weight_DU.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall_DC = np.where(support_DC > 0, right_DC / support_DC, np.nan)
        f1_DC = np.where(support_DC + named_DC > 0, 2 * right_DC / (support_DC + named_DC), np.nan)
        covariance_D = total_D * right_DC.sum(1) - (support_DC * named_DC).sum(1)
        spread_D = (total_D**2 - (named_DC**2).sum(1)) * (total_D**2 - (support_DC**2).sum(1))
        matthews_D = np.where(spread_D > 0, covariance_D / np.sqrt(np.maximum(spread_D, 1e-300)), 0.0)
    return {
        "balanced_accuracy": np.nanmean(recall_DC, axis=1),
        "macro_f1": np.nanmean(f1_DC, axis=1),
        "matthews": matthews_D,
    }


def _sum_by(weight_DU: Floats, group_U: Ints, groups: int) -> Floats:
    order = np.argsort(group_U, kind="stable")
    ordered = group_U[order]
    summed = np.zeros((len(weight_DU), groups))
    if len(ordered):
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        summed[:, ordered[starts]] = np.add.reduceat(weight_DU[:, order], starts, axis=1)
    return summed


def between(value: float, drawn_D: Floats, level: float) -> Estimate:
    """The middle share of what was drawn."""
    known = drawn_D[np.isfinite(drawn_D)]
    if not len(known):
        return Estimate.bare(value)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(min(low, value)), float(max(high, value)), "bootstrap")


def resample(
    rows_NK: NDArray[Any],
    statistic: Callable[[Floats], Floats],
    level: float,
    sums_K: Floats | None = None,
    stride: int = 1,
) -> list[Estimate]:
    """Bootstrap of what `statistic` makes of summed rows: (D, K) in, (D, S) out. The first column should count rows.
    Where these are one in `stride` of all, `sums_K` are the sums of all: the rows tell by how much those scatter."""
    generator = np.random.default_rng(SEED)
    rows_NK = rows_NK.astype(np.float64)
    found_S = statistic(rows_NK.sum(0, keepdims=True) if sums_K is None else sums_K[None])[0]
    if len(rows_NK) > BLOCKS:
        rows_NK = block_sums(rows_NK, generator)
    drawn_DB = generator.multinomial(stride * len(rows_NK), np.full(len(rows_NK), 1 / len(rows_NK)), size=DRAWS)
    spread_DS = statistic(drawn_DB @ rows_NK)
    return [between(float(value), spread_DS[:, i], level) for i, value in enumerate(found_S)]


def block_sums(rows_NK: Floats, generator: np.random.Generator) -> Floats:
    shuffled = rows_NK[generator.permutation(len(rows_NK))]
    return np.add.reduceat(shuffled, np.linspace(0, len(rows_NK), BLOCKS, endpoint=False).astype(np.int64), axis=0)


def judge_numbers(target_N: Floats, predicted_N: Floats, level: float) -> dict[str, Estimate]:
    """R2, root of the mean squared error, mean absolute error, and by how much predictions are too low on average."""
    # shifted by a constant: squares of numbers far from zero would lose the digits that matter
    centred_N, residual_N = target_N - target_N.mean(), target_N - predicted_N
    columns = [np.ones_like(centred_N), centred_N, centred_N**2, residual_N, residual_N**2, np.abs(residual_N)]

    def figures(sums_DK: Floats) -> Floats:
        count, y, y2, r, r2, a = sums_DK.T
        spread = np.maximum(y2 - y * y / count, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            explained = np.where(spread > 0, 1 - r2 / spread, np.nan)
        return np.stack([explained, np.sqrt(r2 / count), a / count, r / count], 1)

    names = ("r2", "rmse", "mae", "mean_residual")
    return dict(zip(names, resample(np.stack(columns, 1), figures, level), strict=True))


def mean_of(values_N: Floats, weight_N: Floats, level: float) -> Estimate:
    """The mean over elements, of means over those of each sample."""
    known = (weight_N > 0) & np.isfinite(values_N)
    values, weight = values_N[known], weight_N[known]
    if not len(values):
        return Estimate.bare(math.nan)
    mean = float((values * weight).sum() / weight.sum())
    if len(values) < 2:
        return Estimate.bare(mean)
    spread = float(np.square(weight * (values - mean)).sum()) * len(values) / (len(values) - 1)
    half = quantile(level) * math.sqrt(spread) / float(weight.sum())
    return Estimate(mean, mean - half, mean + half, "normal")
