"""Two samples of numbers, feature by feature: how far apart they are, where that is more than chance would put them.

A sample of a split is one draw, however many pixels or steps it has: means are taken by sample first, and their scatter
over samples gives the error. Differences that all features together would show by chance count as none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.distributions.student import t_quantile
from torchdoctor.rules.data.columns import varies
from torchdoctor.rules.data.train_validation_mismatch import CAP, Distance, divergence

Floats = NDArray[np.float64]

ERROR_RATE = 1e-4
"""Of a whole comparison, all its features together: one healthy training in ten thousand."""
FEATURES = 256
"""That are compared; of more, every n-th."""
LEAST = 8
"""Samples of either split."""


@dataclass(frozen=True)
class Moments:
    """(samples, features): mean of a feature in each sample, and mean of its square."""

    first: Floats
    second: Floats

    def __len__(self) -> int:
        return len(self.first)


def take_moments(tensors: list[Tensor]) -> Moments | None:
    """Of batches; None where they are no numbers or differ in their features."""
    parts = [_reduce(t) for t in tensors if t.is_floating_point() and t.dim() and t.numel()]
    if not parts or any(part.shape[2] != parts[0].shape[2] for part in parts):
        return None
    first, second = torch.cat(parts, 1).numpy()
    return Moments(first, second)


def _reduce(tensor: Tensor) -> Tensor:
    """(2, samples, features); features are columns, channels, or the last dimension of a sequence."""
    values = tensor.detach().cpu().double()
    if values.dim() == 1:
        values = values[:, None]
    dim = 1 if values.dim() in (2, 4, 5) else values.dim() - 1
    values = values.movedim(dim, 1)
    values = values[:, :: -(-values.shape[1] // FEATURES)]
    values = values.reshape(*values.shape[:2], -1)
    return torch.stack([values.mean(2), values.square().mean(2)])


def compare(train: Moments | None, held: Moments | None) -> Distance | None:
    """In nats, as the rule for recorded runs measures it; 0 for a feature whose difference may be chance."""
    if (
        train is None
        or held is None
        or train.first.shape[1] != held.first.shape[1]
        or min(len(train), len(held)) < LEAST
    ):
        return None
    mean_t, mean_v = train.first.mean(0), held.first.mean(0)
    std_t, std_v = (np.sqrt(np.maximum(m.second.mean(0) - m.first.mean(0) ** 2, 0)) for m in (train, held))
    alive = np.isfinite(std_v) & varies(mean_t, std_t)
    if not alive.any():
        return None
    around = [m.second - 2 * mean_t * m.first + mean_t**2 for m in (train, held)]
    sigmas = np.maximum(_welch(train.first, held.first), _welch(*around))
    sure = sigmas[alive] > _critical(int(alive.sum()), min(len(train), len(held)))
    moved = np.abs(mean_v - mean_t)[alive] / std_t[alive]
    ratio = np.maximum(std_v[alive] / std_t[alive], 1e-6)
    nats = np.where(sure, np.minimum(divergence(moved, ratio), CAP), 0.0)
    moments = (mean_t[alive], std_t[alive]), (mean_v[alive], std_v[alive])
    return Distance("validation", len(held), nats, moved, ratio, *moments)


def _welch(a: Floats, b: Floats) -> Floats:
    error = np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))
    gap = np.abs(a.mean(0) - b.mean(0))
    return np.where(error > 0, gap / np.maximum(error, 1e-300), np.where(gap > 0, np.inf, 0.0))


def _critical(features: int, samples: int) -> float:
    """Of Student's distribution, for two tests a feature of both signs."""
    return t_quantile(1 - ERROR_RATE / (4 * features), samples - 1)


def differ_in_kinds(train: Floats, held: Floats) -> tuple[float, bool]:
    """Total variation between two sets of labels, and whether it is more than chance (a chi-square test)."""
    kinds = np.unique(np.concatenate([train, held]))
    a, b = (np.array([(part == kind).sum() for kind in kinds], np.float64) for part in (train, held))
    variation = float(0.5 * np.abs(a / a.sum() - b / b.sum()).sum())
    expected = (a + b) / (a.sum() + b.sum())
    frequent = expected * b.sum() >= 5  # below that the statistic is not distributed as chi-square
    a, b = (np.append(part[frequent], part[~frequent].sum()) for part in (a, b))
    used = a + b > 0
    if used.sum() < 2:
        return variation, False
    share = (a + b)[used] / (a.sum() + b.sum())
    statistic = sum(float((np.square(p[used] - share * p.sum()) / (share * p.sum())).sum()) for p in (a, b))
    half = torch.tensor([(int(used.sum()) - 1) / 2, statistic / 2], dtype=torch.float64)
    return variation, float(torch.special.gammaincc(half[0], half[1])) < ERROR_RATE
