"""One change of preprocessing that would explain a shift: a factor, a normalisation, another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.instruments.evaluating.metrics import Floats, Ints
from torchdoctor.instruments.evaluating.ranking import Bools
from torchdoctor.instruments.serving.shifts import Shifts, distance
from torchdoctor.instruments.serving.trained import Trained
from torchdoctor.rules.data.training_serving_skew import FAR

CLOSE = 0.1
"""Population stability index below which nothing is said to have changed (Yurdakul 2018)."""
NOISE = 2.0
"""What chance adds to it, times the samples: a squared error of the mean, and as much for the spread."""
FITS = 0.9
"""Share of features that must be close after the change."""
MANY = 0.5
"""Share of features that must be far off before it."""
FACTORS = (255.0, 127.5, 100.0, 1000.0)
"""Bytes of pixels, percent, units with a prefix; each also the other way round."""
IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
"""Mean and spread of RGB channels from 0 to 1, as torchvision's models take them."""
STANDARD_MEAN, STANDARD_SPREAD = 0.15, 0.2
"""Median distance of means from 0 and of log spreads from 0 below which features count as normalised."""
LEAST_ORDERED = 3
LEAST_FACTOR = 3.0
"""A factor of any size that counts as preprocessing rather than as other data."""


@dataclass(frozen=True)
class Change:
    """What use would do differently, and what the training's mean and spread would become by it."""

    kind: str
    text: str
    fix: str
    mean: Floats
    std: Floats


def explain(shifts: Shifts, trained: Trained, shifted: list[int], samples: int) -> dict[str, str] | None:
    """The change that makes nearly all features fit best; None where there is none. `shifted`: features that are off
    beyond chance."""
    alive = (trained.spread > 1e-12) & np.isfinite(shifts.mean)
    if not alive.any():
        return None
    if (shifts.distance[alive] >= FAR).mean() < MANY:
        return _reordered(shifts, trained, alive, shifted)
    fitting = []
    for change in _changes(trained):
        left = distance((shifts.mean - change.mean)[alive], shifts.std[alive], change.std[alive])
        if (left < CLOSE + NOISE / samples).mean() >= FITS:
            fitting.append((float(np.median(left)), change))
    if not fitting:
        fitting = _by_some_factor(shifts, trained, alive, samples)
    if fitting:
        best = min(fitting, key=lambda pair: pair[0])[1]
        return {"kind": best.kind, "text": best.text, "fix": best.fix}
    return _reordered(shifts, trained, alive, shifted) or _normalised(shifts, trained, alive)


def _by_some_factor(shifts: Shifts, trained: Trained, alive: Bools, samples: int) -> list[tuple[float, Change]]:
    """The factor that the spreads tell, where it is large and the means agree."""
    factor = float(np.median(shifts.std[alive] / trained.spread[alive]))
    if factor <= 0 or LEAST_FACTOR > factor > 1 / LEAST_FACTOR:
        return []
    mean, std = factor * trained.centre, factor * trained.spread
    left = distance((shifts.mean - mean)[alive], shifts.std[alive], std[alive])
    if (left < CLOSE + NOISE / samples).mean() < FITS:
        return []
    said = f"about {factor:.3g} times as large" if factor > 1 else f"about {1 / factor:.3g} times as small"
    text, fix = f"they are {said} as in training", "Scale them in use as in training."
    return [(float(np.median(left)), Change("scale", text, fix, mean, std))]


def _changes(trained: Trained) -> Iterator[Change]:
    mean, std = trained.centre, trained.spread
    for factor in FACTORS:
        by = f"{factor:g}"
        larger = f"they are {by} times as large as in training"
        smaller = f"they are {by} times as small as in training"
        yield Change("scale", larger, f"Divide by {by} in use, as in training.", factor * mean, factor * std)
        yield Change(
            "scale", smaller, f"Leave the division by {by} out in use, as in training.", mean / factor, std / factor
        )
    text = "they run from {} where training had {}"
    fix = "Scale them as in training: x = {}"
    yield Change("scale", text.format("0 to 1", "-1 to 1"), fix.format("2 * x - 1"), (mean + 1) / 2, std / 2)
    yield Change("scale", text.format("-1 to 1", "0 to 1"), fix.format("(x + 1) / 2"), 2 * mean - 1, 2 * std)
    yield Change(
        "scale", text.format("0 to 255", "-1 to 1"), fix.format("x / 127.5 - 1"), 127.5 * (mean + 1), 127.5 * std
    )
    yield Change(
        "scale", text.format("-1 to 1", "0 to 255"), fix.format("127.5 * (x + 1)"), mean / 127.5 - 1, std / 127.5
    )
    if len(mean) == 3 and trained.unit == "channel":
        yield from _imagenet(mean, std)


def _imagenet(mean: Floats, std: Floats) -> Iterator[Change]:
    centre, scale = IMAGENET
    fix = "x = (x - mean) / std with mean 0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225"
    missing = "the normalisation with ImageNet's mean and standard deviation is missing"
    yield Change("normalisation", missing, f"Normalise in use: {fix}.", mean * scale + centre, std * scale)
    bytes_fix = f"Divide by 255 and normalise in use: {fix}."
    yield Change(
        "normalisation",
        f"{missing}, and so is the division by 255",
        bytes_fix,
        255 * (mean * scale + centre),
        255 * std * scale,
    )
    yield Change(
        "normalisation",
        "the normalisation with ImageNet's mean and standard deviation is applied twice, or only in use",
        "Normalise in use as often as in training.",
        (mean - centre) / scale,
        std / scale,
    )


def _reordered(shifts: Shifts, trained: Trained, alive: Bools, shifted: list[int]) -> dict[str, str] | None:
    """Another order of features: each one that is off looks like another one of training, and every one that changes
    its place does."""
    count = len(shifts.mean)
    every = count >= LEAST_ORDERED and trained.index[1] == 1
    if trained.feature_dim is None or len(shifted) < 2 or not alive.all() or not every:
        return None
    apart_UT = np.stack([distance(shifts.mean - m, shifts.std, np.full(count, s)) for m, s in _pairs(trained)], 1)
    order = _match(apart_UT)
    moved = order != np.arange(count)
    if not moved[shifted].all() or (apart_UT[np.arange(count), order][moved] >= CLOSE).any():
        return None
    if trained.unit == "channel" and count == 3 and order.tolist() == [2, 1, 0]:
        return {
            "kind": "order",
            "text": "their channels are in the opposite order (RGB against BGR)",
            "fix": "Turn the channels round in use: x = x.flip(1)",
        }
    wrong = np.flatnonzero(moved)
    said = ", ".join(f"{trained.unit} {u} holds what was {trained.unit} {order[u]}" for u in wrong[:3])
    return {
        "kind": "order",
        "text": f"their {trained.unit}s are in another order ({said}{' ...' if len(wrong) > 3 else ''})",
        "fix": f"Save the order of {trained.unit}s with the model, and bring them into it in use.",
    }


def _pairs(trained: Trained) -> Iterator[tuple[float, float]]:
    for mean, std in zip(trained.centre, trained.spread, strict=True):
        yield float(mean), float(std)


def _match(apart_UT: Floats) -> Ints:
    """One of training for each in use: itself where it fits, then the closest pairs first."""
    count = len(apart_UT)
    order, left = np.full(count, -1), apart_UT.copy()
    own = np.diag(apart_UT)
    left[np.arange(count), np.arange(count)] = np.where(own < CLOSE, own - CLOSE, own)
    for _ in range(count):
        used, known = divmod(int(np.argmin(left)), count)
        order[used] = known
        left[used, :] = left[:, known] = np.inf
    return order


def _normalised(shifts: Shifts, trained: Trained, alive: Bools) -> dict[str, str] | None:
    in_training = _is_standard(trained.centre[alive], trained.spread[alive])
    in_use = _is_standard(shifts.mean[alive], shifts.std[alive])
    if in_training and not in_use and float(np.median(shifts.distance[alive])) > 1:
        return {
            "kind": "normalisation",
            "text": "training inputs had mean 0 and spread 1, these have not: the normalisation is missing or differs",
            "fix": "Save the mean and standard deviation of the training data, and use them: x = (x - mean) / std",
        }
    if in_use and not in_training:
        return {
            "kind": "normalisation",
            "text": "they have mean 0 and spread 1, training inputs had not: they are normalised only in use",
            "fix": "Leave the normalisation out in use, or train with it.",
        }
    return None


def _is_standard(mean: Floats, std: Floats) -> bool:
    spread = np.abs(np.log(np.maximum(std, 1e-12)))
    return float(np.median(np.abs(mean))) < STANDARD_MEAN and float(np.median(spread)) < STANDARD_SPREAD
