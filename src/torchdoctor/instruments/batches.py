"""Batches of a loader, without moving it: whoever iterates over it next gets what they would have got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torchdoctor.errors import UsageError
from torchdoctor.instruments.state import Randomness


def first_batches(loader: Iterable[Any], count: int) -> list[Any]:
    """The first so many, or all there are."""
    check_loader(loader)
    randomness = Randomness(loader)
    try:
        batches = list(islice(iter(loader), count))
    finally:
        randomness.put_back()
    if not batches:
        raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")
    return batches


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """One batch after the other, from the beginning again when there are no more."""
    check_loader(loader)
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")


def check_loader(loader: Any) -> None:
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise UsageError(f"the loader is a {type(loader).__name__} and cannot be iterated over")
    if hasattr(loader, "__next__"):
        raise UsageError("the loader is an iterator, which cannot be put back; hand over what iter() was called on")
