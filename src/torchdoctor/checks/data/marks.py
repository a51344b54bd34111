"""The identity of samples: a number for each, equal for equal inputs, of two splits that are to be compared.

Where samples are augmented at random, what is stored behind them is compared; where that is out of sight, they are read
without their transforms.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import stats
from torchdoctor.checks.data.sources import ITEM_SECONDS, Column, Source, count_samples, drawing_kept, inputs_of
from torchdoctor.instruments.batches import apart
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.membership import measure_bits

MOST = 100_000
"""Samples of a split that are compared."""
FEW, WIDE = 2, 8
"""Real numbers, and whole ones, from which on a stored column is taken for the sample itself."""
DISTINCT = 0.99
"""Share of different words from which on a column of words names the samples."""
TRIED = 4
"""Samples that are read twice to see whether they are the same again."""
OTHER_SEED = 82_305_117
TRANSFORMS = ("transform", "transforms", "augment", "augmentation", "augmentations", "aug", "joint_transform")


@dataclass(frozen=True)
class Marks:
    values: NDArray[np.int64]
    size: int | None
    """samples that there are"""
    bits: float | None = None
    """that a sample holds, where it is made of real numbers or named"""
    rows: Tensor | None = None
    """some of the samples as rows of numbers"""


def compare_marks(train: Source, validation: Source) -> tuple[Marks, Marks] | None:
    """Marks of both that can be held against each other; None where samples come out differently each time."""
    pair = _stored(train, validation)
    if pair is not None:
        return _mark_columns(pair[0], train), _mark_columns(pair[1], validation)
    if train.is_indexed and validation.is_indexed:
        readers = [_steady(source) for source in (train, validation)]
        if None in readers:
            return None
        return _mark_items(readers[0]), _mark_items(readers[1])  # type: ignore[arg-type]
    return _mark_batches(train), _mark_batches(validation)


def is_steady(source: Source) -> bool:
    """The same samples read twice are the same."""
    indices = source.indices[source.places(TRIED)]
    marks = [mark(inputs_of(item)) for item in source.items([*indices, *indices], math.inf)]
    return None not in marks and marks[: len(indices)] == marks[len(indices) :]


def is_same_again(source: Source) -> bool:
    """What samples cannot be picked from gives the same ones whatever the random numbers are. The pre-flight reads both
    splits from the same state, so that samples made at random would be equal in both."""
    if isinstance(source.loader, list | tuple) or source.loader is None:
        return True
    first = _mark_batches(source).values
    with drawing_kept(source.dataset), apart(source.loader):
        torch.manual_seed(OTHER_SEED)
        np.random.seed(OTHER_SEED)
        random.seed(OTHER_SEED)
        again = Source(None, list(islice(iter(source.loader), len(source.batches))))
    return float(np.isin(first, _mark_batches(again).values).mean()) > 0.5


# -- what is stored ------------------------------------------------------------------------------


def _stored(train: Source, validation: Source) -> tuple[list[Column], list[Column]] | None:
    if not (train.is_indexed and validation.is_indexed):
        return None
    both = train.unchanged, validation.unchanged
    if both[0] and both[0].keys() == both[1].keys() and _covers(train) and _covers(validation):
        columns = [[held[at] for at in sorted(held)] for held in both]
        if all(_kind(a) == _kind(b) for a, b in zip(*columns, strict=True)):
            return columns[0], columns[1]
    known = {(column.name, _kind(column)): column for column in validation.columns if _identifies(column)}
    shared = [c for c in train.columns if _identifies(c) and (c.name, _kind(c)) in known]
    if not shared:
        return None
    widest = max(shared, key=_width)
    return [widest], [known[widest.name, _kind(widest)]]


def _covers(source: Source) -> bool:
    """All that an item holds beside its target comes from those columns."""
    item = source.items(source.indices[:1])[0]
    inputs = inputs_of(item)
    parts = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    return isinstance(inputs, Tensor) or (isinstance(parts, list) and len(parts) == len(source.unchanged))


def _kind(column: Column) -> Any:
    held = column.held
    return (str(held.dtype), tuple(held.shape[1:])) if isinstance(held, Tensor | np.ndarray) else type(_name(held[0]))


def _width(column: Column) -> float:
    held = column.held
    return float(np.prod(held.shape[1:])) if isinstance(held, Tensor | np.ndarray) else math.inf


def _identifies(column: Column) -> bool:
    if isinstance(column.held, Tensor | np.ndarray):
        return _width(column) >= (FEW if "float" in str(column.held.dtype) else WIDE)
    names = [_name(value) for value in column.held]
    return all(isinstance(n, str) for n in names) and len(set(names)) >= DISTINCT * len(names)


def _name(value: Any) -> Any:
    """Of a file: alone, or before its label."""
    value = value[0] if isinstance(value, tuple) and value else value
    return str(value) if isinstance(value, str | Path) else value


def _mark_columns(columns: list[Column], source: Source) -> Marks:
    places = source.places(MOST)
    if not isinstance(columns[0].held, Tensor | np.ndarray):
        words = [mark(_name(value)) or 0 for value in columns[0].take(places)]
        return Marks(np.array(words, np.int64), len(source.indices), math.inf)
    marks, bits = np.zeros(len(places), np.int64), 0.0
    for number, column in enumerate(columns):
        parts = np.array_split(places, max(1, math.ceil(len(places) * _width(column) / (1 << 22))))
        found = [stats.fingerprints(torch.as_tensor(column.take(part)).cpu()).numpy() for part in parts]
        marks = marks * 31 + np.concatenate(found) * (number + 1)
        bits += _bits(torch.as_tensor(column.take(places[:64]))) or 0.0
    widest = max(columns, key=_width)
    return Marks(marks, len(source.indices), bits or None, rows_from(widest, source))


def rows_from(column: Column, source: Source, most: int = 1 << 14) -> Tensor | None:
    if _width(column) < 2:
        return None
    values = torch.as_tensor(column.take(source.places(most))).cpu()
    return values.reshape(len(values), -1)


# -- what is read ---------------------------------------------------------------------------------


def _steady(source: Source) -> Source | None:
    """A source whose samples are the same each time: this one, or this one without its transforms."""
    if is_steady(source):
        return source
    bare = _without_transforms(source.dataset)
    if bare is None:
        return None
    plain = Source(_Over(bare), source.batches)
    plain.__dict__["indices"] = source.indices
    try:
        return plain if is_steady(plain) else None
    except Exception:
        return None


class _Over:
    """A loader as far as a source asks."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def _without_transforms(dataset: Any, depth: int = 3) -> Any:
    """A shallow copy, through Subset and the like; None where there is nothing to take away."""
    if depth == 0 or not hasattr(dataset, "__dict__"):
        return None
    bare, changed = copy.copy(dataset), False
    for name, value in vars(dataset).items():
        if name in TRANSFORMS and callable(value):
            setattr(bare, name, None)
            changed = True
        elif name in ("dataset", "base", "data", "inner", "ds") and hasattr(value, "__getitem__"):
            inner = _without_transforms(value, depth - 1)
            if inner is not None:
                setattr(bare, name, inner)
                changed = True
    return bare if changed else None


def _mark_items(source: Source) -> Marks:
    items = [inputs_of(item) for item in source.items(source.indices[source.places(MOST)])]
    marks = [mark(item) for item in items]
    tensors = [batch_tensors(item) for item in items]
    rows = None
    if tensors and all(part and part[0].shape == tensors[0][0].shape for part in tensors):
        rows = torch.stack([part[0].cpu() for part in tensors]).reshape(len(tensors), -1)
    kept = np.array([value for value in marks if value is not None], np.int64)
    return Marks(kept, source.size, _bits(rows), rows)


def _mark_batches(source: Source) -> Marks:
    marks: list[int] = []
    rows: list[Tensor] = []
    begun = perf_counter()
    batches = source.loader if isinstance(source.loader, list | tuple) else source.batches
    for batch in batches:
        tensors = [t for t in batch_tensors(inputs_of(batch)) if t.dim() and len(t) == count_samples(batch)]
        if not tensors:
            continue
        found = [stats.fingerprints(t).cpu().numpy() for t in tensors]
        marks += sum(part * 31 ** (len(found) - i) for i, part in enumerate(found)).tolist()  # type: ignore[union-attr]
        rows.append(tensors[0].cpu().reshape(len(tensors[0]), -1))
        if perf_counter() - begun > ITEM_SECONDS:
            break
    same = bool(rows) and all(r.shape[1] == rows[0].shape[1] for r in rows)
    joined = torch.cat(rows) if same else None
    return Marks(np.array(marks, np.int64), source.size, _bits(joined), joined)


def _bits(rows: Tensor | None) -> float | None:
    found = measure_bits(rows.reshape(len(rows), -1)) if rows is not None and len(rows) else None
    return None if found is None else float(found)


def mark(value: Any) -> int | None:
    """A 64-bit number for anything a dataset gives; None for what it is not known how to read."""
    digest = hashlib.blake2b(digest_size=8)
    return int.from_bytes(digest.digest(), "little", signed=True) if _feed(digest, value) else None


def _feed(digest: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_feed(digest, part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        digest.update(str(len(value)).encode())
        return all(_feed(digest, part) for part in value)
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.view(torch.int16) if value.dtype == torch.bfloat16 else value).numpy()
    elif hasattr(value, "tobytes") and hasattr(value, "size") and not isinstance(value, np.ndarray):
        digest.update(str(value.size).encode() + value.tobytes())
        return True
    if isinstance(value, np.ndarray):
        if value.dtype == np.dtype(object):
            return False
        digest.update(str((value.shape, value.dtype)).encode() + np.ascontiguousarray(value).tobytes())
        return True
    if isinstance(value, str | bytes | int | float | bool | Path) or value is None:
        digest.update(value if isinstance(value, bytes) else f"{value!r}\0".encode())
        return True
    return False
