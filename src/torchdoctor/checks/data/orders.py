"""The order in which a loader's sampler would go through its dataset, without reading any of it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

Ints = NDArray[np.int64]

RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
MOST = 1_000_000
"""Indices of an epoch that are drawn."""


def single_sampler(loader: Any) -> Any:
    """That gives single indices; accelerate and others wrap the user's."""
    batches = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return getattr(batches, "sampler", None) or getattr(loader, "sampler", None)


def is_of_torch(sampler: Any) -> bool:
    """One whose order is known from its type alone, not derived from it by the user."""
    return type(sampler) in (*RANDOM, SequentialSampler, DistributedSampler)


def indices_of(loader: Any, size: int) -> Ints:
    """Of the dataset of that size, that the loader may ever draw."""
    sampler = single_sampler(loader)
    if isinstance(sampler, SubsetRandomSampler):
        return np.asarray(list(sampler.indices), np.int64)
    if isinstance(sampler, WeightedRandomSampler):
        return np.flatnonzero(sampler.weights.cpu().numpy()).astype(np.int64)
    if is_of_torch(sampler) and _groups_only(loader):
        return np.arange(size, dtype=np.int64)
    drawn = draw_epochs(loader, 1)
    inside = drawn[0] if drawn else np.zeros(0, np.int64)
    inside = inside[(inside >= 0) & (inside < size)]
    return np.unique(inside) if len(inside) else np.arange(size, dtype=np.int64)


def draw_epochs(loader: Any, count: int, most: int = MOST) -> list[Ints] | None:
    """The indices of that many epochs in their order; None where the sampler gives no indices. A copy of the sampler is
    asked, and random states are put back by whoever calls."""
    batches, sampler = getattr(loader, "batch_sampler", None), single_sampler(loader)
    asked = sampler if _groups_only(loader) else batches
    if asked is None:
        return None
    asked = copy.copy(asked)
    with _generators_kept(asked, sampler, loader):
        try:
            epochs = [np.asarray(list(islice(_flat(asked), most)), np.int64) for _ in range(count)]
        except (TypeError, ValueError, OverflowError):
            return None
    return epochs


def _groups_only(loader: Any) -> bool:
    """Its batches are cut from the sampler's order as it is."""
    batches = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return batches is None or type(batches) is BatchSampler or type(batches).__module__.startswith("accelerate")


def _flat(indices: Any) -> Iterator[int]:
    for index in indices:
        if isinstance(index, list | tuple | torch.Tensor | np.ndarray) and np.ndim(index):
            yield from (int(i) for i in index)
        else:
            yield int(index)


@contextlib.contextmanager
def _generators_kept(*holders: Any) -> Iterator[None]:
    held = [getattr(holder, "generator", None) for holder in holders]
    states = [(g, g.get_state()) for g in held if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
