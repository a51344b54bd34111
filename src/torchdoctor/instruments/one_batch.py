"""One batch, whether it was handed over itself or is to be taken from a loader; and the tensors that it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject, fields_of


def one_batch(source: Any) -> Any:
    """`source` itself where it is a batch, else the first that it gives, without moving it."""
    if source is None:
        raise UsageError("neither a batch nor a loader was given, but None")
    return source if is_batch(source) else first_batches(source, 1)[0]


def is_batch(source: Any) -> bool:
    """Tensors, mappings, dataclasses, tuples, lists with a tensor in them, and whatever can be moved to a device."""
    if isinstance(source, Tensor | Mapping | tuple):
        return True
    if isinstance(source, list):
        return any(isinstance(part, Tensor) for part in source)
    if dataclasses.is_dataclass(source) and not isinstance(source, type):
        return True
    return hasattr(source, "to") or not (hasattr(source, "__iter__") or hasattr(source, "__getitem__"))


def tensors_in(batch: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in it by the way to it: "[0]", "labels", "boxes[1].x"."""
    if isinstance(batch, Tensor):
        yield name, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from tensors_in(value, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        for key in batch._fields:
            yield from tensors_in(getattr(batch, key), f"{name}.{key}".lstrip("."))
    elif isinstance(batch, list | tuple):
        for index, value in enumerate(batch):
            yield from tensors_in(value, f"{name}[{index}]")
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for key, value in fields_of(batch).items():
            yield from tensors_in(value, f"{name}.{key}".lstrip("."))


def first_samples(batch: Any, count: int) -> Any:
    """The same with its first samples alone; None where it is of a kind that cannot be divided."""
    total = samples_in(batch)

    def shorter(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value[:count] if value.dim() and len(value) == total else value
        return _rebuilt(value, shorter)

    if total is None or count > total or not isinstance(batch, Tensor | Mapping | list | tuple):
        return None
    return shorter(batch)


def is_taken(subject: Subject, batch: Any) -> bool:
    """Whether there is a loss of it: one may be tied to the size that batches have, as where all samples are compared
    with one another."""
    try:
        with untouched(*subject.parts):
            subject.loss(batch)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def replaced(batch: Any, old: Tensor, new: Tensor) -> Any:
    """The same with another tensor in the place of one; None where that one is not in it."""
    found = False

    def other(value: Any) -> Any:
        nonlocal found
        if isinstance(value, Tensor):
            same = value is old or (value.shape == old.shape and value.data_ptr() == old.data_ptr())
            found = found or same
            return new if same else value
        return _rebuilt(value, other)

    changed = other(batch)
    return changed if found else None


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A container of the same kind with its parts changed; anything else as it is."""
    if isinstance(value, Mapping):
        return {k: change(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    return type(value)(map(change, value)) if isinstance(value, list | tuple) else value


def samples_in(batch: Any) -> int | None:
    """The length that most of its tensors have, of two as frequent ones the first; None where it holds none."""
    lengths = [len(tensor) for _, tensor in tensors_in(batch) if tensor.dim() > 0]
    return max(lengths, key=lengths.count) if lengths else None
