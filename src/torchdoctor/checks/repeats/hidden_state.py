"""What a model or a loader keeps beside parameters and buffers: plain attributes, and generators of its own."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler

from torchdoctor.checks.bench import Bench

DEPTH, OBJECTS, ITEMS = 6, 20_000, 200
"""How far objects are followed, how many of them, and how much of a long list."""
CHOSEN = 2**64
"""Seeds that people choose are below; what NumPy takes from the system has 128 bits."""
OWN = ("_parameters", "_buffers", "_modules", "training")
"""Of a module's attributes: what is in these is restored elsewhere."""
COUNTS = (bool, int, float, str, NoneType)
"""Attributes of datasets and samplers that may change from epoch to epoch; what else they hold is the data."""

Generator = np.random.Generator | np.random.RandomState | random.Random | torch.Generator


class HiddenState:
    """As it is now; `put_back` sets it again in the very objects that hold it."""

    def __init__(self, bench: Bench) -> None:
        loader = bench.train_loader
        roots = [bench.model, bench.subject.loss_fn, bench.subject.step_fn]
        roots += [getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler", "collate_fn")]
        self._generators = [(g, _state(g)) for g in _generators(roots)]
        self._attributes = [
            (vars(module), {k: _copied(v) for k, v in vars(module).items() if k not in OWN})
            for module in bench.model.modules()
        ]
        self._counts = [(vars(holder), _counts_of(vars(holder))) for holder in _holders(loader)]
        self._held = [
            (held, dict(held)) for module in bench.model.modules() for held in (module._parameters, module._buffers)
        ]
        """the very tensors: `self.mean = 0.9 * self.mean + ...` puts another one in the place of a buffer"""

    def put_back(self) -> None:
        for generator, state in self._generators:
            _set_state(generator, state)
        for held, kept in self._attributes:
            for name in [n for n in held if n not in kept and n not in OWN]:
                del held[name]
            held.update({k: _copied(v) for k, v in kept.items()})
        for held, counts in self._counts:
            for name in _counts_of(held).keys() - counts.keys():
                del held[name]
            held.update(counts)
        for tensors, those in self._held:
            tensors.clear()
            tensors.update(those)

    def unseeded(self) -> list[Generator]:
        """NumPy's generators that have been drawn from since, and whose seed nobody chose."""
        moved = [g for g, state in self._generators if repr(_state(g)) != repr(state)]
        return [g for g in moved if isinstance(g, np.random.Generator) and _is_unseeded(g)]


def _counts_of(held: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if isinstance(value, COUNTS)}


def _holders(loader: Any) -> list[Any]:
    """The datasets and samplers of a loader, and those within them."""
    found: dict[int, Any] = {}
    waiting = [getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler")]
    while waiting and len(found) < ITEMS:
        holder = waiting.pop()
        if isinstance(holder, list | tuple):
            waiting += holder[:ITEMS]
        elif isinstance(holder, Dataset | Sampler) and id(holder) not in found and hasattr(holder, "__dict__"):
            found[id(holder)] = holder
            waiting += [v for v in vars(holder).values() if isinstance(v, Dataset | Sampler | list | tuple)]
    return list(found.values())


def _is_unseeded(generator: np.random.Generator) -> bool:
    entropy = getattr(getattr(generator.bit_generator, "seed_seq", None), "entropy", None)
    return isinstance(entropy, int) and entropy >= CHOSEN


def _generators(roots: list[Any]) -> list[Generator]:
    found: dict[int, Generator] = {}
    seen: set[int] = set()
    waiting = [(root, 0) for root in roots if root is not None]
    while waiting and len(seen) < OBJECTS:
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.random.Generator | np.random.RandomState | random.Random | torch.Generator):
            found[id(value)] = value
        elif depth < DEPTH:
            waiting += [(child, depth + 1) for child in _children(value)]
    return list(found.values())


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor | np.ndarray | str | bytes | int | float | bool | type | ModuleType | None):
        return
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue
        yield from (value.__globals__[n] for n in value.__code__.co_names if n in value.__globals__)
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, Mapping):
        yield from list(value.values())[:ITEMS]
    elif isinstance(value, list | tuple):
        yield from value[:ITEMS]
    elif isinstance(value, nn.Module):
        yield from [v for k, v in vars(value).items() if k not in ("_parameters", "_buffers")]
    else:
        yield from list(getattr(value, "__dict__", {}).values())[:ITEMS]


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return copy.deepcopy(generator.bit_generator.state)
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = copy.deepcopy(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _copied(value: Any) -> Any:
    """Of plain values; objects of other kinds are kept as they are."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.requires_grad and not value.is_leaf else value.clone()
    if type(value) in (list, tuple, dict, set) and _is_plain(value):
        return copy.copy(value) if type(value) is not tuple else tuple(map(_copied, value))
    return value


def _is_plain(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value
    return all(isinstance(v, Tensor | str | bytes | int | float | bool | None) for v in values)
