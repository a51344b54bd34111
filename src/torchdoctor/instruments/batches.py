"""Batches of a loader, without moving it: whoever iterates over it next gets what they would have got."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from torchdoctor.errors import UsageError
from torchdoctor.instruments.state import Randomness


def first_batches(loader: Iterable[Any], count: int) -> list[Any]:
    """The first so many, or all there are."""
    check_loader(loader)
    randomness = Randomness(loader)
    try:
        with apart(loader):
            batches = list(islice(iter(loader), count))
    finally:
        randomness.put_back()
    if not batches:
        raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")
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
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise UsageError(f"the loader is a {type(loader).__name__} and cannot be iterated over")
    if hasattr(loader, "__next__"):
        raise UsageError("the loader is an iterator, which cannot be put back; hand over what iter() was called on")
