"""Counts of a tensor's elements in signed powers of two: the bins of signals.histogram_edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.signals import HISTOGRAM_BINS, HISTOGRAM_EXPONENTS
from torchdoctor.stats import triton
from torchdoctor.stats.cpu import CHUNK
from torchdoctor.stats.rows import by_device, nothing
from torchdoctor.stats.support import Elements, Quiet, blocked

LOWEST, HIGHEST = HISTOGRAM_EXPONENTS
SIDE = HIGHEST - LOWEST + 2
"""Bins of one sign; the bin of zeros is number SIDE."""


def histograms(tensors: Sequence[Tensor]) -> Tensor:
    """(T, HISTOGRAM_BINS) float32 counts; NaN and Inf are in no bin; a row of NaN where a tensor is unsupported."""
    if not tensors or blocked():
        return nothing((len(tensors), HISTOGRAM_BINS))
    with Quiet():
        return by_device(tensors, (HISTOGRAM_BINS,), _measure)


def _measure(values: list[Tensor], parts: list[Elements]) -> Tensor:
    if values[0].is_cpu:
        counts = torch.from_numpy(np.stack([_count(v) for v in values]).astype(np.float32))
    elif triton.usable(values[0]) and all(v.dtype in triton.DTYPES for v in values):
        counts = triton.histograms(values)
    else:
        counts = torch.stack([_count_by_torch(v) for v in values]).float()
    for row, part in zip(counts.unbind(), parts, strict=True):
        if part.repeats != 1:
            row *= part.repeats
        if part.implied:
            row[SIDE] += part.implied
    return counts


def _bins(exponents: int, bias: int) -> NDArray[np.intp]:
    """The bin for every pattern of sign and exponent bits; zeros counted apart; HISTOGRAM_BINS for no bin."""
    exponent = np.arange(exponents)
    magnitude = np.clip(exponent - bias - LOWEST + 1, 0, SIDE - 1)
    nowhere = exponent == exponents - 1
    positive = np.where(nowhere, HISTOGRAM_BINS, SIDE + 1 + magnitude)
    negative = np.where(nowhere, HISTOGRAM_BINS, SIDE - 1 - magnitude)
    return np.concatenate((positive, negative))


_SINGLE, _DOUBLE = _bins(256, 127), _bins(2048, 1023)


def _count(flat: Tensor) -> NDArray[np.int64]:
    counts = np.zeros(HISTOGRAM_BINS + 1, np.int64)
    single = flat.dtype in (torch.float32, torch.float16, torch.bfloat16)
    bins, shift = (_SINGLE, 23) if single else (_DOUBLE, 52)
    for piece in flat.split(CHUNK) if flat.numel() > CHUNK else (flat,):
        values = piece.to(torch.float32 if single else torch.float64).numpy()
        bits = values.view(np.uint32 if single else np.uint64)
        found = np.bincount((bits >> shift).astype(np.intp), minlength=len(bins))
        zeros = np.count_nonzero(values == 0)
        if zeros:
            below = np.count_nonzero(bits[values == 0])
            found[0] -= zeros - below
            found[len(bins) // 2] -= below
            counts[SIDE] += zeros
        np.add.at(counts, bins, found)
    return counts[:-1]


def _count_by_torch(flat: Tensor) -> Tensor:
    values = flat if flat.dtype is torch.float64 else flat.float()
    magnitude = (torch.frexp(values).exponent - 1 - LOWEST + 1).clamp_(0, SIDE - 1)
    place = torch.where(values < 0, SIDE - 1 - magnitude, SIDE + 1 + magnitude)
    place = torch.where(values == 0, SIDE, place)
    place = torch.where(torch.isfinite(values), place, HISTOGRAM_BINS).long()
    counts = torch.zeros(HISTOGRAM_BINS + 1, dtype=torch.int64, device=flat.device)
    return counts.scatter_add_(0, place, torch.ones_like(place))[:-1]
