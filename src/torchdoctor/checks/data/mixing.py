"""Whether labels or numbers come mixed: over the batches, and from one sample to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchdoctor.rules.data.not_shuffled import (
    ENTROPY_SHARE,
    EXCESS_VARIANCE,
    LEAST_LOOKS,
    MONOTONE,
    SIGMAS,
    random_entropy,
    rank_correlation,
)

Floats = NDArray[np.float64]

FEWER_RUNS = 0.8
"""Runs over those expected: neighbours are alike more than chance allows, and by enough to matter."""

MOST_EXCESS = 0.6
"""Variance of batch means over that of random batches, by batch size: 1 where each batch holds one value."""
NEIGHBOURS = 0.5
"""Difference between the means of neighbouring batches over that of any two: 1 in random order."""


@dataclass(frozen=True)
class Mixing:
    sorted: bool
    """batches hold a part of the classes, or of the range, each"""
    clustered: bool
    """neighbours are alike beyond chance, though batches are mixed"""
    text: str


def judge_classes(batches: list[Floats]) -> Mixing | None:
    """Labels of each batch in the order in which they come; None where too few, or all of one class."""
    labels = np.concatenate(batches) if batches else np.zeros(0)
    kinds, counts = np.unique(labels, return_counts=True)
    whole = [batch for batch in batches if len(batch) == len(batches[0])]
    if len(whole) < LEAST_LOOKS or len(kinds) < 2 or len(whole[0]) < 2:
        return None
    expected, spread = random_entropy(counts / counts.sum(), len(whole[0]))
    observed = [_entropy(batch) for batch in whole]
    sigmas = (float(np.mean(observed)) - expected) / (max(spread, 1e-6) / math.sqrt(len(whole)))
    lacking = sigmas <= -SIGMAS and float(np.mean(observed)) <= ENTROPY_SHARE * expected
    each = float(np.median([len(np.unique(batch)) for batch in whole]))
    runs, chance, error = count_runs(labels)
    clustered = runs < FEWER_RUNS * chance and runs < chance - SIGMAS * error
    text = (
        f"a batch of {len(whole[0])} holds {each:.0f} of {len(kinds)} classes"
        if lacking
        else f"the class changes {runs} times where random order gives {chance:.0f}"
    )
    return Mixing(lacking, clustered, text)


def count_runs(labels: Floats) -> tuple[int, float, float]:
    """Runs of equal labels, and their mean and standard deviation in random order (Barton and David, 1957)."""
    n = len(labels)
    counts = np.unique(labels, return_counts=True)[1].astype(np.float64)
    squares, cubes = float((counts**2).sum()), float((counts**3).sum())
    mean = n + 1 - squares / n
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1)) if n > 1 else 0.0
    return int((np.diff(labels) != 0).sum()) + 1, mean, math.sqrt(max(variance, 0.0))


def judge_numbers(batches: list[Floats]) -> Mixing | None:
    """Targets that are numbers."""
    whole = [batch for batch in batches if len(batch) == len(batches[0])]
    if len(whole) < LEAST_LOOKS or len(whole[0]) < 2:
        return None
    table = np.stack(whole)
    total = float(table.var())
    if not total > 0:
        return None
    means = table.mean(1)
    excess = float(means.var()) / (total / table.shape[1])
    along = rank_correlation(np.arange(table.size), table.ravel())
    apart = np.abs(np.diff(means)).mean() / max(float(np.abs(means[:, None] - means).mean()), 1e-300)
    much = excess >= min(EXCESS_VARIANCE, MOST_EXCESS * table.shape[1])
    ordered = much and abs(along) >= MONOTONE
    text = (
        f"the target {'rises' if along > 0 else 'falls'} through the epoch (rank correlation {along:.2f})"
        if ordered
        else f"the batches' mean targets vary {excess:.1f} times as much as those of random batches"
    )
    return Mixing(ordered, much and apart < NEIGHBOURS, text)


def _entropy(labels: Floats) -> float:
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log(shares)).sum())
