"""Validation samples that are hardly different from a training sample: copies with noise, crops, neighbouring frames.

Every sample has some nearest neighbour, and in data of few dimensions a very near one. So the nearest is held against
the twentieth: of points that fill k dimensions evenly it is ten times nearer in about 20 / 10^k of all cases. Only what
goes far beyond that counts, and data of so few dimensions that it happens by itself is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FAR, FARTHEST = 20, 40
"""Neighbours that the nearest is held against, and up to which the dimension is measured."""
NEARER = 0.1
"""The nearest over the twentieth."""
LEAST_TRAINED, LEAST_HELD = 100, 20
MOST_TRAINED, MOST_HELD, MOST_FEATURES = 1 << 14, 512, 256
JUDGED = 0.01
"""Chance for a single sample above which nothing can be told."""


@dataclass(frozen=True)
class Nearness:
    near: int
    """validation samples that are next to a training sample and not equal to it"""
    compared: int
    chance: float
    """how many would be by chance"""

    @property
    def share(self) -> float:
        return self.near / self.compared


def measure_nearness(train: Tensor | None, held: Tensor | None) -> Nearness | None:
    """Rows of numbers of both splits; None where too few, or where nearness means nothing."""
    if train is None or held is None or train.shape[1] != held.shape[1] or train.shape[1] < 2:
        return None
    train, held = _thin(train, MOST_TRAINED), _thin(held, MOST_HELD)
    if len(train) < LEAST_TRAINED or len(held) < LEAST_HELD:
        return None
    every = -(-train.shape[1] // MOST_FEATURES)
    train, held = train[:, ::every].float(), held[:, ::every].float()
    spread = train.std(0)
    kept = (spread > 0) & spread.isfinite() & held.isfinite().all(0)
    if int(kept.sum()) < 2:
        return None
    train, held = train[:, kept] / spread[kept], held[:, kept] / spread[kept]
    distance = torch.cdist(held, train, compute_mode="donot_use_mm_for_euclid_dist")
    ordered = distance.topk(min(FARTHEST, len(train)), largest=False).values.double()
    return _judge(ordered)


def _judge(ordered: Tensor) -> Nearness | None:
    """(validation samples, neighbours): distances, nearest first."""
    far = ordered[:, FAR - 1]
    usable = (far > 0) & (ordered[:, 0] > 0)
    if int(usable.sum()) < LEAST_HELD:
        return None
    dimension = _dimension(ordered[usable])
    alone = 1 - (1 - NEARER**dimension) ** (FAR - 1)
    if alone > JUDGED:
        return None
    near = int((ordered[usable, 0] < NEARER * far[usable]).sum())
    return Nearness(near, len(ordered), alone * int(usable.sum()))


def _dimension(ordered: Tensor) -> float:
    """That the data fills near its points. Of evenly spread ones, distance / farthest to the power of the dimension is
    uniform, so that the mean logarithms are differences of harmonic numbers. The nearest are left out: they may be
    copies."""
    first, last = FAR // 2, ordered.shape[1]
    harmonic = torch.cat([torch.zeros(1), (1 / torch.arange(1, last)).cumsum(0)]).double()
    growth = (ordered[:, -1:] / ordered[:, first:-1].clamp_min(1e-12)).log().mean(1).median()
    expected = (harmonic[last - 1] - harmonic[first : last - 1]).mean()
    return float(expected / growth.clamp_min(1e-6))


def _thin(rows: Tensor, most: int) -> Tensor:
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).long()]
