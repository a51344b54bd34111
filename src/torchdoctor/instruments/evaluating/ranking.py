"""How well scores put samples of a class before the others: AUROC, average precision, precision at k. Numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchdoctor.instruments.evaluating.metrics import Estimate, Floats, Ints, quantile, wilson

Bools = NDArray[np.bool_]


def midranks(values_N: Floats) -> Floats:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, at, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[at]


@dataclass(frozen=True)
class Ranked:
    """The AUROC of one class against the rest, and what each sample adds to its spread (DeLong et al. 1988)."""

    value: float
    influence: Floats
    """of every sample, in their order"""
    least: int
    """samples of the class, or of the rest where those are fewer"""


def rank(score_N: Floats, is_true_N: Bools) -> Ranked | None:
    """None where one side is missing."""
    positives, count = int(is_true_N.sum()), len(score_N)
    if positives in (0, count):
        return None
    place_N = np.empty(count)
    place_N[is_true_N] = _below(score_N[is_true_N], score_N[~is_true_N])
    place_N[~is_true_N] = 1 - _below(score_N[~is_true_N], score_N[is_true_N])
    value = float(place_N[is_true_N].mean())
    share_N = np.where(is_true_N, positives / count, 1 - positives / count)
    return Ranked(value, (place_N - value) / share_N, min(positives, count - positives))


def _below(values: Floats, others: Floats) -> Floats:
    """Of each value the share of the others that lies below it; of equal ones half."""
    ordered = np.sort(others)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2 * len(others))


def auroc(ranked: list[Ranked], level: float, sample_N: Ints | None = None) -> Estimate:
    """The mean over classes. `sample_N` says which elements belong together."""
    if not ranked:
        return Estimate.bare(math.nan)
    value = float(np.mean([r.value for r in ranked]))
    influence_N = np.mean([r.influence for r in ranked], axis=0)
    count = len(influence_N)
    if sample_N is not None:
        influence_N = np.bincount(sample_N, influence_N)
    error = math.sqrt(float(np.square(influence_N).sum())) / count
    if error == 0 or value in (0.0, 1.0):
        least = min(r.least for r in ranked)
        bound = wilson(value * least, least, level)
        return Estimate(value, bound.low, bound.high, "Wilson")
    # on the log odds, where the interval cannot leave 0 to 1
    odds, half = math.log(value / (1 - value)), quantile(level) * error / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-max(-700.0, min(700.0, o)))) for o in (odds - half, odds + half))
    return Estimate(value, low, high, "DeLong")


def average_precision(score_N: Floats, is_true_N: Bools) -> float:
    """The mean of the precision at each true sample, from the highest score down; equal scores count at once."""
    if not is_true_N.any():
        return math.nan
    order = np.argsort(-score_N, kind="stable")
    hits, ordered = np.cumsum(is_true_N[order]), score_N[order]
    ends = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])
    gained = np.diff(np.r_[0, hits[ends]])
    return float((gained * hits[ends] / (ends + 1)).sum() / hits[-1])


def precision_at(score_N: Floats, is_true_N: Bools, k: int) -> float:
    """The share of true ones among the k highest scores; of equal scores at the edge, what drawing lots gives."""
    if not 0 < k <= len(score_N):
        return math.nan
    edge = np.partition(score_N, -k)[-k]
    above, level = score_N > edge, score_N == edge
    return float((is_true_N[above].sum() + (k - above.sum()) * is_true_N[level].mean()) / k)
