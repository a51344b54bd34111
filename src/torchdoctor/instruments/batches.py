"""Batches of a loader, without moving it: whoever iterates over it next gets what they would have got."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from torchdoctor.errors import UsageError
from torchdoctor.instruments.state import Randomness

ONE_BATCH = "this is one batch; put it in a list: [batch]"
SAMPLES = "its items are samples, not batches; hand over DataLoader(dataset, batch_size=...)"


def first_batches(loader: Iterable[Any], count: int, name: str = "the loader") -> list[Any]:
    """The first so many, or all there are. `name`: what it is called to whoever handed it over."""
    check_loader(loader)
    randomness = Randomness(loader)
    try:
        with apart(loader):
            batches = list(islice(iter(loader), count))
    finally:
        randomness.put_back()
    if not batches:
        raise UsageError(f"{name} gives no batch; is its dataset empty, or drop_last=True with too few samples?")
    return batches


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """One batch after the other, from the beginning again when there are no more."""
    check_loader(loader)
    with apart(loader):
        while True:
            empty = True
            for batch in loader:
                empty = False
                yield batch
            if empty:
                raise UsageError(
                    "the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?"
                )


@contextlib.contextmanager
def apart(loader: Any) -> Iterator[None]:
    """A loader with persistent workers has one iterator for all its walks: inside it gets another, with workers of its
    own, so that an epoch under way goes on afterwards and what its workers draw is not drawn already."""
    if not isinstance(loader, DataLoader) or not loader.persistent_workers:
        yield
        return
    kept, loader._iterator = loader._iterator, None
    try:
        yield
    finally:
        own, loader._iterator = loader._iterator, kept
        if own is not None:
            own._shutdown_workers()  # type: ignore[attr-defined]


def check_loader(loader: Any) -> None:
    """A batch, or a dataset, would be iterated over, too, and give numbers for something else."""
    if _is_batch(loader):
        raise UsageError(f"the loader is a {type(loader).__name__}: {ONE_BATCH}")
    if isinstance(loader, Mapping):
        raise UsageError(f"the loader is a {type(loader).__name__} of {_names(loader)}; hand over what gives batches")
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise UsageError(f"the loader is a {type(loader).__name__} and cannot be iterated over")
    if hasattr(loader, "__next__"):
        raise UsageError("the loader is an iterator, which cannot be put back; hand over what iter() was called on")
    if isinstance(loader, IterableDataset):
        _check_stream(loader)
    elif isinstance(loader, Dataset):
        raise UsageError(
            f"the loader is a dataset ({type(loader).__name__}): {SAMPLES}, or batch_size=None where they are batches"
        )


def _is_batch(value: Any) -> bool:
    """What holds a tensor itself. But a list of tensors of one kind may be batches of inputs alone."""
    if isinstance(value, Tensor):
        return True
    parts = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else []
    if not any(isinstance(part, Tensor | np.ndarray) for part in parts):
        return False
    kinds = {(type(part), getattr(part, "dtype", None), getattr(part, "ndim", None)) for part in parts}
    return not isinstance(value, list) or len(kinds) > 1


def _names(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, islice(mapping, 4))) or "nothing"


def _check_stream(stream: IterableDataset[Any]) -> None:
    """A stream may give batches, and some are used as loaders; one whose targets are single numbers gives samples."""
    randomness = Randomness(stream)
    try:
        first = next(iter(stream), None)
    finally:
        randomness.put_back()
    if isinstance(first, list | tuple) and len(first) > 1 and isinstance(first[0], Tensor) and _is_number(first[-1]):
        raise UsageError(f"the loader is a dataset ({type(stream).__name__}): {SAMPLES}")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) or (isinstance(value, Tensor) and value.dim() == 0)
