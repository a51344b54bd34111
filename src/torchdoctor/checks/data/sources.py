"""What a loader draws from: its dataset, its order, its items and the columns that are stored behind them.

Items are read in this process, under a limit of time, and what draws random numbers on the way is put back.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from torchdoctor.checks.data.orders import indices_of
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.subject import TARGET_KEYS
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.splits import resolve

Ints = NDArray[np.int64]

ITEM_SECONDS = 0.6
"""For reading items of one split."""
DEPTH, ATTRIBUTES = 3, 40
"""How far, and among how many attributes, generators are searched for in a dataset."""
CONFIRMING = 12
"""Items whose targets must agree with a stored column for it to be the labels."""
MOST_LISTED = 200_000
"""Items of a list that is a dataset."""
PORTION, MOST_ELEMENTS = 1 << 22, 1 << 26
"""Elements of a stored column that are looked at together, and at most: a quarter of a second."""
LABEL_NAMES = (*TARGET_KEYS, "ys", "classes", "classification", "target_ids")


@dataclass
class Source:
    """Of one loader; `batches` are the first it gave."""

    loader: Any
    batches: list[Any] = field(default_factory=list)

    @cached_property
    def dataset(self) -> Any:
        return getattr(self.loader, "dataset", None)

    @cached_property
    def is_stream(self) -> bool:
        return isinstance(self.dataset, IterableDataset) or (
            self.dataset is not None and not hasattr(self.dataset, "__getitem__")
        )

    @cached_property
    def batch_size(self) -> int:
        batches = getattr(self.loader, "batch_sampler", None)
        size = getattr(self.loader, "batch_size", None) or getattr(batches, "batch_size", None)
        return int(size or next((len(t) for b in self.batches for t in batch_tensors(b) if t.dim()), 1))

    @property
    def workers(self) -> int:
        return int(getattr(self.loader, "num_workers", 0) or 0)

    @cached_property
    def indices(self) -> Ints:
        """Of the dataset, that the loader may draw; empty for a stream or a list of batches."""
        size = None if self.dataset is None or self.is_stream else length(self.dataset)
        if size is None:
            return np.zeros(0, np.int64)
        with drawing_kept(None):
            return indices_of(self.loader, size)

    @cached_property
    def is_indexed(self) -> bool:
        """Its samples can be asked for one by one, here: some datasets are made ready in their workers only."""
        if not len(self.indices):
            return False
        try:
            self.items(self.indices[:1])
        except Exception:
            return False
        return True

    @property
    def size(self) -> int | None:
        """Samples, where they can be counted without reading them."""
        if self.is_indexed:
            return len(self.indices)
        if isinstance(self.loader, list | tuple):
            return sum(count_samples(batch) for batch in self.loader)
        return length(self.dataset) if self.dataset is not None else None

    @cached_property
    def base(self) -> tuple[Any, Ints]:
        """The dataset that holds the data, and which of its indices stand for those of this loader."""
        base, places = resolve(self.dataset)
        return base, places[self.indices] if len(places) else places

    def places(self, count: int) -> Ints:
        """So many positions in `indices`, evenly over all of them, whatever order the data is stored in."""
        size = len(self.indices)
        return np.arange(size) if size <= count else np.linspace(0, size - 1, count).astype(np.int64)

    def items(self, indices: Sequence[int] | Ints, seconds: float = ITEM_SECONDS) -> list[Any]:
        """As the dataset gives them, as many as there is time for."""
        found, begun = [], perf_counter()
        with drawing_kept(self.dataset):
            for index in indices:
                found.append(self.dataset[int(index)])
                if perf_counter() - begun > seconds:
                    break
        return found

    def batches_of(self, places: Ints, seconds: float = ITEM_SECONDS) -> list[Any]:
        """The samples at those positions as the loader would put them together."""
        collate = getattr(self.loader, "collate_fn", None) or default_collate
        items = self.items(self.indices[places], seconds)
        size = max(1, min(self.batch_size, len(items)))
        with drawing_kept(self.dataset):
            return [collate(items[at : at + size]) for at in range(0, len(items), size)]

    def batches_across(self, count: int, seconds: float = ITEM_SECONDS) -> list[Any]:
        """Batches of samples from all over the data where they can be picked, else the first that there are."""
        if isinstance(self.loader, list | tuple) and self.loader:
            most = max(1, count // self.batch_size)
            return [self.loader[at] for at in np.unique(np.linspace(0, len(self.loader) - 1, most).astype(int))]
        if not self.is_indexed:
            return self.batches
        try:
            return self.batches_of(self.places(count), seconds)
        except Exception:
            return self.batches

    @cached_property
    def columns(self) -> list[Column]:
        """What is stored for each sample, in the order of `indices`."""
        base, places = self.base
        size = length(base)
        try:
            held = _columns_of(base) if len(places) else {}
        except Exception:
            held = {}
        return [Column(name, value, places) for name, value in held.items() if length(value) == size]

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """Of every sample, as stored, in the order of `indices`; None where they cannot be had without reading all."""
        if not self.is_indexed:
            return None
        places = self.places(CONFIRMING)
        wanted = [as_number(target_of(item)) for item in self.items(self.indices[places], ITEM_SECONDS / 2)]
        if not wanted or None in wanted:
            return None
        for column in sorted(self.columns, key=lambda c: c.name.lower() not in LABEL_NAMES):
            held = column.numbers()
            if held is not None and all(agree(held[at], value) for at, value in zip(places, wanted, strict=False)):
                return held
        return None

    @cached_property
    def keeps_targets(self) -> bool:
        """Batches hold the targets as the samples have them: no collate_fn makes others of them, as mixup does."""
        collate = getattr(self.loader, "collate_fn", None)
        if collate is None or collate is default_collate:
            return True
        items = self.items(self.indices[self.places(CONFIRMING)], ITEM_SECONDS / 2)
        try:
            with drawing_kept(self.dataset):
                held = batch_tensors(target_of(collate(list(items))))[0].flatten().tolist()
        except Exception:
            return False
        wanted = [as_number(target_of(item)) for item in items]
        return len(held) == len(wanted) and all(agree(a, b) for a, b in zip(held, wanted, strict=True))

    @cached_property
    def unchanged(self) -> dict[int, Column]:
        """Columns that an item's inputs are taken from as they are stored, by the input's position."""
        if not self.is_indexed:
            return {}
        return self._columns_behind(lambda item: batch_tensors(inputs_of(item)))

    @cached_property
    def stored_target(self) -> Column | None:
        """The column that targets of several numbers are taken from as they are stored."""
        return self._columns_behind(lambda item: batch_tensors(target_of(item))).get(0) if self.is_indexed else None

    def _columns_behind(self, part: Callable[[Any], list[Tensor]]) -> dict[int, Column]:
        places = self.places(CONFIRMING)
        given = [part(item) for item in self.items(self.indices[places], ITEM_SECONDS / 2)]
        found: dict[int, Column] = {}
        for column in self.columns:
            if not isinstance(column.held, Tensor | np.ndarray) or column.held.dtype == np.dtype(object):
                continue
            rows = [torch.as_tensor(row) for row in column.take(places[: len(given)])]
            for position in range(min(map(len, given), default=0)):
                pairs = [(tensors[position], row) for tensors, row in zip(given, rows, strict=True)]
                if all(a.dtype == b.dtype and same(a, b) for a, b in pairs):
                    found.setdefault(position, column)
        return found

    def labels_across(self, count: int) -> NDArray[Any] | None:
        """Of all samples where they are stored, else of as many as can be read in time, from all over the data."""
        if self.labels is not None:
            return self.labels
        read = self.items(self.indices[self.places(count)])
        values = [as_number(target_of(item)) for item in read]
        return np.array(values) if values and None not in values else None


@dataclass(frozen=True)
class Column:
    """One value for each sample, as it is stored."""

    name: str
    held: Any
    indices: Ints

    def take(self, places: Ints) -> Any:
        """The values of those samples; a tensor or an array where they are stored as such, else a list."""
        at = self.indices[places]
        if isinstance(self.held, Tensor):
            return self.held[torch.from_numpy(at).to(self.held.device)]
        return self.held[at] if isinstance(self.held, np.ndarray) else [self.held[int(i)] for i in at]

    def portions(self) -> Iterator[tuple[Tensor, Ints]]:
        """Tensors of as many samples as fit a portion, and their positions."""
        each = max(1, self.held[:1].size if isinstance(self.held, np.ndarray) else self.held[:1].numel())
        count = max(1, PORTION // each)
        for at in range(0, min(len(self.indices), MOST_ELEMENTS // each), count):
            places = np.arange(at, min(at + count, len(self.indices)))
            yield torch.as_tensor(self.take(places)).cpu(), places

    def numbers(self) -> NDArray[Any] | None:
        """One number a sample, or None."""
        if as_number(self.held[0]) is None:
            return None
        values = self.take(np.arange(len(self.indices)))
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.double().numpy() if values.is_floating_point() else values.numpy()
        try:
            laid = np.asarray(values).reshape(len(values))
        except ValueError:  # rows of any length, whose first is one number by chance
            return None
        return laid if laid.dtype.kind in "biuf" else None


def same(a: Tensor, b: Tensor) -> bool:
    """NaN equals NaN."""
    if a.shape != b.shape:
        return False
    a, b = a.cpu(), b.cpu()
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) if a.is_floating_point() else torch.equal(a, b)


def length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:
        return None


def count_samples(batch: Any) -> int:
    return next((int(tensor.shape[0]) for tensor in batch_tensors(batch) if tensor.dim()), 0)


def inputs_of(item: Any) -> Any:
    """An item or a batch without its target."""
    if isinstance(item, Mapping):
        return {key: value for key, value in item.items() if key not in TARGET_KEYS}
    return list(item[:-1]) if isinstance(item, list | tuple) and len(item) > 1 else item


def target_of(item: Any) -> Any:
    if isinstance(item, Mapping):
        return next((item[key] for key in TARGET_KEYS if key in item), None)
    return item[-1] if isinstance(item, list | tuple) and len(item) > 1 else None


def agree(a: float, b: float | None) -> bool:
    return b is not None and (a == b or (a != a and b != b))


def as_number(value: Any) -> float | None:
    if isinstance(value, Tensor | np.ndarray):
        value = value.item() if (value.numel() if isinstance(value, Tensor) else value.size) == 1 else None
    return float(value) if isinstance(value, bool | int | float | np.number | np.bool_) else None


def _columns_of(base: Any) -> dict[str, Any]:
    """Of Hugging Face's datasets only the labels: a column of theirs is read from disk as a whole."""
    names = getattr(base, "column_names", None)
    if isinstance(names, list):
        return {str(name): base[name] for name in names if str(name).lower() in LABEL_NAMES}
    if isinstance(base, list | tuple):
        return {"target": [target_of(item) for item in base]} if len(base) <= MOST_LISTED else {}
    found = dict(list(vars(base).items())[:ATTRIBUTES]) if hasattr(base, "__dict__") else {}
    for name, value in list(found.items()):
        if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor | np.ndarray) for v in value):
            found |= {f"{name}[{i}]": v for i, v in reversed(list(enumerate(value)))}
    kinds = Tensor, np.ndarray, list, tuple
    return {name: value for name, value in found.items() if isinstance(value, kinds)}


@contextlib.contextmanager
def drawing_kept(dataset: Any) -> Iterator[None]:
    """Generators, the dataset's own among them, go on afterwards from where they were."""
    randomness = Randomness()
    own = [(generator, _state_of(generator)) for generator in own_generators(dataset)]
    try:
        yield
    finally:
        for generator, state in own:
            _set_state(generator, state)
        randomness.put_back()


def own_generators(thing: Any, depth: int = DEPTH) -> list[Any]:
    """That a dataset or its transforms hold."""
    found: list[Any] = []
    if depth < 0 or not hasattr(thing, "__dict__"):
        return found
    for value in list(vars(thing).values())[:ATTRIBUTES]:
        parts = value if isinstance(value, list | tuple) and len(value) <= ATTRIBUTES else [value]
        for part in parts:
            if isinstance(part, np.random.Generator | np.random.RandomState | random.Random | torch.Generator):
                found.append(part)
            elif not isinstance(part, Tensor | np.ndarray | type):
                found += own_generators(part, depth - 1)
    return list({id(generator): generator for generator in found}.values())


def _state_of(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return copy.deepcopy(generator.bit_generator.state)
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
