"""What samples are sliced by: a function of the batch, a column of it, or a value for each sample of the dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.slicing import as_values
from torchdoctor.report.text import count as counted

Slices = Callable[[Any], Any] | str | Mapping[str, Any] | Any
UNNAMED = "slice"


class Attributes:
    """Collects the values batch by batch."""

    def __init__(self, slices: Slices | None) -> None:
        self._ways = _named(slices)
        self._parts: dict[str, list[NDArray[Any]]] = {}

    def add(self, batch: Any, indices: list[int] | None, start: int, count: int) -> None:
        """`start`: samples before this batch; `indices` into the dataset, None where only the order is known."""
        for name, way in self._ways.items():
            for by, values in _read(name, way, batch, indices, start, count).items():
                array = as_values(values, by)
                if len(array) != count:
                    raise UsageError(
                        f"slices by {by} give {counted(len(array), 'value')} for a batch of {counted(count, 'sample')}"
                    )
                self._parts.setdefault(by, []).append(array)

    def finish(self, samples: int) -> dict[str, NDArray[Any]]:
        found = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        uneven = [name for name, values in found.items() if len(values) != samples]
        if uneven:
            raise UsageError(f"slices by {uneven[0]} were not given for every batch")
        return found


def _named(slices: Slices | None) -> dict[str, Any]:
    if slices is None:
        return {}
    if isinstance(slices, Mapping):
        return dict(slices)
    if isinstance(slices, str):
        return {slices: slices}
    if callable(slices):
        name = getattr(slices, "__name__", UNNAMED)
        return {UNNAMED if name == "<lambda>" else name: slices}
    return {UNNAMED: slices}


def _read(name: str, way: Any, batch: Any, indices: list[int] | None, start: int, count: int) -> dict[str, Any]:
    if callable(way) and not hasattr(way, "__array__"):
        found = way(batch)
        return dict(found) if isinstance(found, Mapping) else {name: found}
    if isinstance(way, str):
        return {name: _column(batch, way)}
    if isinstance(way, list | tuple) and way and all(isinstance(w, str) and _has(batch, w) for w in way):
        return {w: _column(batch, w) for w in way}
    values = as_values(way, name)
    places = np.arange(start, start + count) if indices is None else np.asarray(indices)
    if len(places) and places.max() >= len(values):
        raise UsageError(
            f"slices by {name} hold {counted(len(values), 'value')}, and sample {places.max()} is asked for; they need "
            "one for each sample of the dataset, in its order"
        )
    return {name: values[places]}


def _has(batch: Any, key: str) -> bool:
    return key in batch if isinstance(batch, Mapping) else dataclasses.is_dataclass(batch) and hasattr(batch, key)


def _column(batch: Any, key: str) -> Any:
    if _has(batch, key):
        return batch[key] if isinstance(batch, Mapping) else getattr(batch, key)
    if isinstance(batch, Mapping) or dataclasses.is_dataclass(batch):
        held = batch if isinstance(batch, Mapping) else [f.name for f in dataclasses.fields(batch)]
        raise UsageError(f"slices name the column {key!r}; a batch holds {', '.join(map(str, held))}")
    raise UsageError(
        f"slices name the column {key!r}, and a batch is a {type(batch).__name__} without names; hand over a function "
        "of the batch or a value for each sample"
    )
