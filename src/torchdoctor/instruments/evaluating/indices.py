"""Batches of a loader together with where their samples stand in its dataset, also where it shuffles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from torchdoctor.instruments.batches import apart, check_loader

Indices = list[int] | None


class _Watched:
    """A sampler, and what it has given."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.given: deque[list[int]] = deque()

    def __iter__(self) -> Iterator[Any]:
        for drawn in self._sampler:
            drawn = list(drawn) if isinstance(drawn, list | tuple) else drawn
            self.given.append(drawn if isinstance(drawn, list) else [drawn])
            yield drawn

    def __len__(self) -> int:
        return len(self._sampler)


def with_indices(loader: Iterable[Any]) -> Iterator[tuple[Any, Indices]]:
    """Each batch and the indices of its samples, None where they cannot be seen. The loader itself is not walked
    through: one like it is, so that workers it keeps and an epoch under way stay as they are."""
    check_loader(loader)
    if not has_indices(loader):
        with apart(loader):
            yield from ((batch, None) for batch in loader)
        return
    watched = _Watched(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)  # type: ignore[attr-defined]
    for batch in _like(loader, watched):  # type: ignore[arg-type]
        drawn = watched.given.popleft()
        yield batch, drawn if all(isinstance(i, int) for i in drawn) else None


def has_indices(loader: Any) -> bool:
    """A plain DataLoader over a dataset with indices; who overrides how it is walked through knows what they do."""
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and not isinstance(loader.dataset, IterableDataset)
    )


def shuffles(loader: Any) -> bool:
    return isinstance(getattr(loader, "sampler", None), RandomSampler)


def _like(loader: DataLoader[Any], watched: _Watched) -> DataLoader[Any]:
    batched: dict[str, Any] = (
        {"batch_sampler": watched} if loader.batch_sampler is not None else {"sampler": watched, "batch_size": None}
    )
    workers: dict[str, Any] = {}
    if loader.num_workers:
        workers = {"prefetch_factor": loader.prefetch_factor, "multiprocessing_context": loader.multiprocessing_context}
    return DataLoader(
        loader.dataset,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **batched,
        **workers,
    )
