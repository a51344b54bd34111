"""How far features of samples lie from those of training batches, and how often chance brings them there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.student import t_cdf
from torchdoctor.instruments.evaluating.metrics import Floats
from torchdoctor.instruments.serving.trained import Trained

LEAST_ROWS, LEAST_PICTURES = 8, 4
"""Below it, means and spreads say nothing that holds for any distribution; only ranges are compared. A picture or a
series holds many values of each feature."""
CHUNKS = 5
"""Chunks of the samples from which on their own scatter counts."""
LOOKS = 4
"""Looks from which on the scatter of batches is known."""
FLOOR = 0.05
"""Of the spread in training: below it, a spread counts as this small, so that its logarithm stays finite."""
PART = 0.05
"""Share of a sample's elements outside of a range from which on the sample is."""
BLOCK = 4_000_000
"""Numbers that are looked at at once."""
CAP = 100.0
TINY = 1e-12


@dataclass(frozen=True)
class Shifts:
    """Of each feature that was recorded."""

    mean: Floats
    std: Floats
    distance: Floats
    chance: Floats
    outside: Floats
    outside_chance: Floats


@dataclass(frozen=True)
class Summary:
    """Of each sample and feature, relative to the training's centre: squares of numbers far from zero would lose the
    digits that matter."""

    first: Floats
    """(n, F): mean over the feature's elements, NaN where none is finite"""
    second: Floats
    """mean of squares"""
    outside: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    """(n,): samples with a value that is not finite"""
    elements: int
    """of a feature in a sample"""
    low: float
    high: float


def summarise(values: NDArray[Any], trained: Trained) -> Summary:
    """Block by block, so that a large file need not be held twice."""
    each = max(1, values.size // max(1, len(values)))
    rows = max(1, BLOCK // each)
    parts = [_summarise(_by_feature(values[i : i + rows], trained), trained) for i in range(0, len(values), rows)]
    joined = [np.concatenate([getattr(p, name) for p in parts]) for name in ("first", "second", "outside", "broken")]
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    return Summary(*joined, parts[0].elements, low, high)


def _by_feature(values: NDArray[Any], trained: Trained) -> Floats:
    """(n, F, elements of a feature) of the features that were recorded."""
    if trained.feature_dim is None:
        return values.reshape(len(values), 1, -1).astype(np.float64)
    moved = np.moveaxis(values, trained.feature_dim, 1)[:, trained.index]
    return moved.reshape(len(values), len(trained.index), -1).astype(np.float64)


def _summarise(values_NFE: Floats, trained: Trained) -> Summary:
    finite = np.isfinite(values_NFE)
    none = ~finite.any(2)
    known = np.maximum(finite.sum(2), 1)
    gap = np.where(finite, values_NFE - trained.centre[None, :, None], 0.0)
    first, second = gap.sum(2) / known, np.square(gap).sum(2) / known
    lower, upper = _range(trained)
    beyond = finite & ((values_NFE < lower[None, :, None]) | (values_NFE > upper[None, :, None]))
    return Summary(
        first=np.where(none, np.nan, first),
        second=np.where(none, np.nan, second),
        outside=beyond.sum(2) / known > PART,
        broken=~finite.all((1, 2)),
        elements=values_NFE.shape[2],
        low=float(np.min(values_NFE, initial=math.inf, where=finite)),
        high=float(np.max(values_NFE, initial=-math.inf, where=finite)),
    )


def measure(found: Summary, trained: Trained) -> Shifts:
    count = len(found.first)
    mean_F, std_F = _moments(found.first, found.second)
    outside_F = found.outside.sum(0).astype(np.int64)
    return Shifts(
        mean=mean_F + trained.centre,
        std=std_F,
        distance=distance(mean_F, std_F, trained.spread),
        chance=_chance(found, trained),
        outside=outside_F / count,
        outside_chance=beta_binomial_tail(count, trained.samples, sides=2)[outside_F],
    )


def _moments(first_NF: Floats, second_NF: Floats) -> tuple[Floats, Floats]:
    if not len(first_NF):
        return np.full(first_NF.shape[1], np.nan), np.full(first_NF.shape[1], np.nan)
    with np.errstate(invalid="ignore"):
        count = np.maximum(np.isfinite(first_NF).sum(0), 1)
        mean, square = np.nansum(first_NF, axis=0) / count, np.nansum(second_NF, axis=0) / count
    return mean, np.sqrt(np.maximum(square - mean * mean, 0.0))


def _range(trained: Trained) -> tuple[Floats, Floats]:
    """Seen in training, a hair wider: files round."""
    low, high = trained.low.min(0), trained.high.max(0)
    return low - 1e-5 * np.maximum(high - low, np.abs(low)), high + 1e-5 * np.maximum(high - low, np.abs(high))


def distance(moved: Floats, std: Floats, trained_std: Floats) -> Floats:
    """Population stability index of two normal distributions, from the difference of their means."""
    alive = trained_std > TINY
    scale = np.where(alive, trained_std, 1.0)
    ratio = np.maximum(std / scale, FLOOR)
    shift = np.square(moved / scale)
    found = 0.5 * (np.square(ratio) + 1 / np.square(ratio) - 2 + shift * (1 + 1 / np.square(ratio)))
    return np.where(alive, np.minimum(np.nan_to_num(found, nan=0.0), CAP), 0.0)


def least_samples(found: Summary) -> int:
    return LEAST_PICTURES if found.elements > 1 else LEAST_ROWS


def _chance(found: Summary, trained: Trained) -> Floats:
    """Of means and spreads together, by the scatter of training batches of the same size."""
    first_NF, second_NF = found.first, found.second
    count, features = first_NF.shape
    if count < least_samples(found):
        return np.ones(features)
    batch = float(np.median(trained.size))
    chunks = _chunks(first_NF, second_NF, max(1, int(count // batch)))
    batches = count / batch
    looks = min(float(len(trained.size)), trained.samples / batch, (trained.population or math.inf) / batch)
    theory = _theory(found, trained, batch)
    scale_F = np.where(trained.spread > TINY, trained.spread, 1.0)
    of_looks = (trained.mean - trained.centre, np.log(np.maximum(trained.std / scale_F, FLOOR)))
    if len(trained.size) < LOOKS:
        # the mean of a few logarithms hangs on a batch that happens to be constant: all looks together instead
        of_looks, chunks = (of_looks[0], np.zeros((1, features))), _chunks(first_NF, second_NF, 1)
    of_chunks = (chunks[0], np.log(np.maximum(chunks[1] / scale_F, FLOOR)))
    chances, signs = [], []
    for look_LF, chunk_KF, least_F in zip(of_looks, of_chunks, theory, strict=True):
        scatter_F = np.maximum(least_F, look_LF.std(0, ddof=1) if len(look_LF) >= LOOKS else 0.0)
        if len(chunk_KF) >= CHUNKS:
            scatter_F = np.maximum(scatter_F, np.nan_to_num(np.nanstd(chunk_KF, axis=0, ddof=1)))
        error_F = scatter_F * math.sqrt(1 / batches + 1 / max(looks, 1e-9))
        away_F = (_mean(chunk_KF) - look_LF.mean(0)) / np.maximum(error_F, 1e-300)
        freedom = max(len(look_LF), len(chunk_KF), 2) - 1
        chances.append(np.array([2 * t_cdf(-abs(float(t)), freedom) for t in away_F]))
        signs.append(away_F)
    narrow_F = np.where((signs[1] < 0) & (found.elements == 1), (1 - 1 / (1 + _reach(trained))) ** count, 0.0)
    return np.where(
        trained.spread > TINY, np.minimum(1.0, 2 * np.minimum(chances[0], np.maximum(chances[1], narrow_F))), 1.0
    )


def _reach(trained: Trained) -> Floats:
    """Square of the farthest value from the centre, in spreads. A distribution of that reach has at most this kurtosis,
    and where rare values make the spread, so many samples are all without any with a chance of
    (1 - 1 / (1 + reach)) ** samples."""
    far = np.maximum(trained.high.max(0) - trained.centre, trained.centre - trained.low.min(0))
    return np.square(far / np.maximum(trained.spread, TINY))


def _mean(chunk_KF: Floats) -> Floats:
    known = np.isfinite(chunk_KF)
    return np.where(known, chunk_KF, 0.0).sum(0) / np.maximum(known.sum(0), 1)


def _chunks(first_NF: Floats, second_NF: Floats, parts: int) -> tuple[Floats, Floats]:
    """Mean and spread of stretches of the samples as long as a training batch."""
    found = [
        _moments(first, second)
        for first, second in zip(np.array_split(first_NF, parts), np.array_split(second_NF, parts), strict=True)
    ]
    return np.array([m for m, _ in found]), np.array([s for _, s in found])


def _theory(found: Summary, trained: Trained, batch: float) -> tuple[Floats, Floats]:
    """The least scatter of batch means and log spreads: that of independent samples. Of pictures, whose pixels are not,
    that of the means of the samples themselves."""
    first_NF, second_NF = found.first, found.second
    with np.errstate(invalid="ignore", divide="ignore"):
        own_F = np.nan_to_num(np.nanstd(first_NF, axis=0))
        if found.elements > 1:
            mean_F = own_F if len(trained.size) >= LOOKS else np.maximum(own_F, trained.spread)
            power_N = np.sqrt(np.maximum(second_NF - np.square(first_NF), TINY))
            return mean_F / math.sqrt(batch), np.nan_to_num(np.nanstd(np.log(power_N), axis=0)) / math.sqrt(batch)
        centred = first_NF - np.nanmean(first_NF, axis=0)
        tails_F = np.nanmean(centred**4, axis=0) / np.nanmean(centred**2, axis=0) ** 2
        heavy_F = np.maximum(np.nan_to_num(tails_F, nan=3.0), 1.8)
    if len(first_NF) < batch or len(trained.size) < LOOKS:
        heavy_F = np.maximum(heavy_F, _reach(trained))
    return np.maximum(trained.spread, own_F) / math.sqrt(batch), np.sqrt((heavy_F - 1) / (4 * batch))


def beta_binomial_tail(count: int, trained: int, sides: int) -> Floats:
    """How likely so many of `count` new samples or more lie outside of the range of those trained on, whatever the
    distribution: the share outside follows a beta distribution (Wilks 1941). `sides`: both ends of the range, or 1 for
    something that was never seen."""
    a, b = float(sides), float(max(1, trained - sides + 1))
    hits = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    choose = logs[count] - logs - logs[::-1]
    rise = np.concatenate([[0.0], np.cumsum(np.log(a + np.arange(count)))])
    fall = np.concatenate([[0.0], np.cumsum(np.log(b + np.arange(count)))])[::-1]
    whole = math.lgamma(a + b + count) - math.lgamma(a + b)
    mass = np.exp(choose + rise + fall - whole)
    return np.minimum(1.0, np.cumsum(mass[::-1])[::-1])[hits]
