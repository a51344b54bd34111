"""Two short-lived workers of a training's own loader, asked for the same samples."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from torchdoctor.checks.data.marks import mark
from torchdoctor.checks.data.sources import Source, drawing_kept, inputs_of

FORK = "fork"
WORKERS = 2
SECONDS = 5
"""After which a worker that does not answer is given up."""
INDICES, READS = 8, 2
STREAMED = 12
"""Samples of a stream that each worker is asked for."""
COUNTED = 256
"""Samples up to which a stream is counted."""


@dataclass(frozen=True)
class Trial:
    """Pairs of what two workers gave for the same thing, and how many of these are random at all."""

    pairs: int
    equal: int
    random: int


def can_fork(loader: Any) -> bool:
    """Workers that are spawned import the user's script anew: that is not ours to set off."""
    context = getattr(loader, "multiprocessing_context", None)
    known = context.get_start_method() if context is not None else multiprocessing.get_start_method(allow_none=True)
    return (known or multiprocessing.get_all_start_methods()[0]) == FORK


def try_indexed(source: Source) -> Trial | None:
    """Both workers read the same indices, twice each."""
    picked = source.indices[source.places(INDICES)].tolist()
    order = [index for index in picked for _ in range(WORKERS * READS)]
    marks = _ask(source, len(order), sampler=order)
    if marks is None or len(marks) != len(order):
        return None
    table = np.array(marks, dtype=np.int64).reshape(len(picked), READS, WORKERS)
    random = int((table[:, 0] != table[:, 1]).any(1).sum())
    return Trial(table[..., 0].size, int((table[..., 0] == table[..., 1]).sum()), random)


def try_epochs(source: Source) -> Trial | None:
    """One worker, started anew as for a second epoch, reads the same indices."""
    picked = source.indices[source.places(INDICES)].tolist()
    order = [index for index in picked for _ in range(READS)]
    epochs = [_ask(source, len(order), workers=1, seed=seed, sampler=order) for seed in range(2)]
    if any(e is None or len(e) != len(order) for e in epochs):
        return None
    table = np.array(epochs, dtype=np.int64).reshape(2, len(picked), READS)
    return Trial(table[0].size, int((table[0] == table[1]).sum()), int((table[..., 0] != table[..., 1]).any(0).sum()))


def try_stream(source: Source) -> Trial | None:
    """What either worker gives first, sample by sample; `random` counts different samples."""
    marks = _ask(source, WORKERS * STREAMED)
    if marks is None or len(marks) < WORKERS:
        return None
    pairs = np.array(marks[: len(marks) // 2 * 2], dtype=np.int64).reshape(-1, WORKERS)
    return Trial(len(pairs), int((pairs[:, 0] == pairs[:, 1]).sum()), len(np.unique(pairs)))


def count_stream(source: Source) -> tuple[int, int] | None:
    """Samples that it gives in this process, and those that two workers give together; None where it is long."""
    with drawing_kept(source.dataset):
        alone = sum(1 for _ in islice(iter(source.dataset), COUNTED + 1))
    if not alone or alone > COUNTED:
        return None
    marks = _ask(source, WORKERS * alone + 1)
    return None if marks is None else (alone, len(marks))


def _ask(source: Source, count: int, workers: int = WORKERS, seed: int = 0, **options: Any) -> list[int] | None:
    """Marks of so many samples, in turn from each worker; None where they fail or are too slow."""
    initialise: Callable[[int], None] | None = getattr(source.loader, "worker_init_fn", None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial: DataLoader[Any] = DataLoader(
                source.dataset,
                batch_size=1,
                num_workers=workers,
                collate_fn=_mark_first,
                worker_init_fn=initialise,
                timeout=SECONDS,
                generator=torch.Generator().manual_seed(seed),
                multiprocessing_context=FORK,  # named, so that the default stays open for the script to choose
                **options,
            )
            iterator: Any = iter(trial)
            try:
                return [m for m in islice(iterator, count) if m is not None]
            finally:
                iterator._shutdown_workers()
    except Exception:
        return None


def _mark_first(items: list[Any]) -> int | None:
    return mark(inputs_of(items[0]))
