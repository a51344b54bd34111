"""What a loader draws from: indices into the stored data, and random generators that its workers would share.

Read once a loader from objects alone: nothing of the user's is called, so no random number is drawn and no file read.
"""

from __future__ import annotations

import dis
import hashlib
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, SubsetRandomSampler

from torchdoctor.attach.guard import contained
from torchdoctor.facts import SplitFact
from torchdoctor.interruptions import let_through
from torchdoctor.probes.context import Context

INDICES_KEPT = 4096
MOST_INDICES = 20_000_000
LOADERS = 16
DEPTH = 3
ATTRIBUTES = 40
ENDS = 64
"""Bytes at either end of an array by which it is recognised."""

SEEDING = {"seed", "manual_seed", "seed_everything", "set_seed", "seed_all", "RandomState"}
TELLING_APART = {"initial_seed", "get_worker_info", "worker_id", "seed_sequence", "time", "urandom", "getpid"}
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


class SplitProbe:
    """Describes each loader when it is first walked through."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._described: set[str] = set()
        self._bases: list[tuple[Callable[[], Any], str, tuple[Any, ...]]] = []

    @contained("splits: loader")
    def loader(self, name: str, loader: Any) -> None:
        if loader is None or name in self._described or len(self._described) >= LOADERS:
            return
        self._described.add(name)
        dataset = getattr(loader, "dataset", None)
        workers = int(getattr(loader, "num_workers", 0) or 0)
        iterable = isinstance(dataset, IterableDataset)
        base, indices = (dataset, np.zeros(0, np.int64)) if iterable else resolve(dataset, sampled(loader))
        every = max(1, -(-len(indices) // INDICES_KEPT))
        fact = SplitFact(
            loader=name,
            base=self._name(base),
            samples=len(indices),
            indices=indices[indices % every == 0].tolist(),
            every=every,
            workers=workers,
            generators=copied_generators(dataset) if workers > 1 and not loader.worker_init_fn else [],
            seeded_alike=alike(getattr(loader, "worker_init_fn", None)) if workers > 1 else None,
            iterable=iterable,
            sharded=asks_for_worker(dataset) if iterable and workers > 1 else None,
        )
        self._context.record.fact(fact, self._context.step, name)

    def _name(self, base: Any) -> str:
        """The same word for the same object, or for two that hold the same data."""
        weak = hasattr(base, "__weakref__")
        data = signature(base) if weak else (id(base), *(map(id, base[:1]) if isinstance(base, (list, tuple)) else ()))
        for known, name, held in self._bases:
            if known() is base or (data and data == held):
                return name
        name = f"{type(base).__name__}/{len(self._bases)}"
        self._bases.append((weakref.ref(base) if weak else _gone, name, data))
        return name


def _gone() -> None:
    """In place of a weak reference to what allows none (a list), which is told by its address and its first item's."""


def sampled(loader: Any) -> Any:
    """The indices a sampler is limited to, or None."""
    batches = getattr(loader, "batch_sampler", None)
    sampler = getattr(batches, "sampler", None) or getattr(loader, "sampler", None)
    return sampler.indices if isinstance(sampler, SubsetRandomSampler) else None


def resolve(dataset: Any, chosen: Any = None) -> tuple[Any, np.ndarray[Any, Any]]:
    """The dataset that holds the data, and which of its indices this one stands for."""
    length = _length(dataset)
    if length is None or length > MOST_INDICES:
        return dataset, np.zeros(0, np.int64)
    indices = np.arange(length, dtype=np.int64) if chosen is None else np.asarray(list(chosen), np.int64)
    for _ in range(2 * DEPTH):
        if isinstance(dataset, Subset):
            indices = np.asarray(dataset.indices, np.int64)[indices]
            dataset = dataset.dataset
            continue
        inner = _wrapped(dataset)
        if inner is None:
            break
        dataset = inner
    return dataset, indices


def _wrapped(dataset: Any) -> Any:
    """The one dataset of the same length that this one wraps (to transform its samples), or None."""
    held = [v for v in _attributes(dataset).values() if isinstance(v, Dataset)]
    return held[0] if len(held) == 1 and _length(held[0]) == _length(dataset) else None


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception as error:
        let_through(error)
        return None


def _attributes(thing: Any) -> dict[str, Any]:
    found = getattr(thing, "__dict__", None)
    return dict(list(found.items())[:ATTRIBUTES]) if isinstance(found, dict) else {}


def signature(dataset: Any) -> tuple[Any, ...]:
    """What tells the stored data of a dataset: its arrays and lists, else its words and flags; empty where it has
    neither. Transforms do not count."""
    held = _attributes(dataset)
    data = {name: brief for name, value in held.items() if (brief := _brief(value)) is not None}
    if not data:
        plain = {name: str(v) for name, v in held.items() if isinstance(v, (str, Path, bool, int))}
        data = plain if any(isinstance(held[n], (str, Path)) for n in plain) else {}
    return (type(dataset), _length(dataset), tuple(sorted(data.items()))) if data else ()


def _brief(value: Any) -> Any:
    if isinstance(value, Tensor) and value.device.type == "cpu" and value.layout == torch.strided and value.numel():
        value = value.detach().numpy() if value.dtype not in (torch.bfloat16,) else None
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iufb":
        flat = value.reshape(-1) if value.flags.c_contiguous else None
        ends = flat[:ENDS].tobytes() + flat[-ENDS:].tobytes() if flat is not None else b""
        return (value.shape, str(value.dtype), hashlib.sha1(ends, usedforsecurity=False).hexdigest()) if ends else None
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (str, Path, int, float, tuple)):
        return (len(value), str(value[0])[:200], str(value[-1])[:200])
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, Tensor) for v in value):
        return tuple(_brief(v) for v in value)
    return None


def copied_generators(thing: Any, path: str = "dataset", depth: int = DEPTH) -> list[str]:
    """Generators held by a dataset or its transforms that a method other than __init__ uses."""
    found: list[str] = []
    for name, value in _attributes(thing).items():
        if isinstance(value, _GENERATORS):
            if _uses(type(thing), name):
                found.append(f"{path}.{name}")
        elif depth and isinstance(value, (list, tuple)) and len(value) <= ATTRIBUTES:
            for i, part in enumerate(value):
                if hasattr(part, "__dict__") and not isinstance(part, (Tensor, type)):
                    found += copied_generators(part, f"{path}.{name}[{i}]", depth - 1)
        elif depth and hasattr(value, "__dict__") and not isinstance(value, (Tensor, type, FunctionType)):
            found += copied_generators(value, f"{path}.{name}", depth - 1)
    return found[:8]


def _uses(kind: type, attribute: str) -> bool:
    for klass in kind.__mro__:
        for name, method in vars(klass).items():
            code = getattr(method, "__code__", None)
            if code is not None and name != "__init__" and attribute in code.co_names:
                return True
    return False


def alike(function: Any) -> str | None:
    """The name of a worker_init_fn that seeds without regard to which worker it is in."""
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    names = set(code.co_names)
    if not names & SEEDING or names & TELLING_APART or not code.co_argcount:
        return None
    arguments = set(code.co_varnames[: code.co_argcount])
    loads = {str(i.argval) for i in dis.get_instructions(code) if i.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))}
    return None if any(a in load for a in arguments for load in loads) else function.__name__


def asks_for_worker(dataset: Any) -> bool:
    """An iterable dataset whose code, or that of what it holds, speaks of workers or ranks."""
    for thing in (dataset, *_attributes(dataset).values()):
        for klass in type(thing).__mro__:
            if klass.__module__.startswith("torch.utils.data.dataset"):
                continue
            for method in vars(klass).values():
                code = getattr(method, "__code__", None)
                if code is not None and any("worker" in n or "shard" in n for n in (*code.co_names, *code.co_varnames)):
                    return True
    return False
