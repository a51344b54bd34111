"""What an object keeps in plain attributes: counters, hidden states, histories, and where a loader or sampler is."""

from __future__ import annotations

import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler

FIXED = (bool, int, float, complex, str, bytes, NoneType)
PLAIN = (*FIXED, Tensor)
COLLECTIONS = frozenset((list, dict, set, deque, OrderedDict, defaultdict, Counter))
NESTED, FEW = 2, 32
"""How deep collections in collections are followed, and how long they may be: a cache for each layer, not samples."""


class Attributes:
    """Numbers, words, tensors, arrays and collections in the attributes `held`, and what is in these. Objects of other
    kinds are left alone: a file that was opened since is not to be closed behind its holder's back. Collections with
    more `entries`, and tensors and arrays with more `numbers`, come back as the same ones, whatever is in them."""

    def __init__(
        self, held: dict[str, Any], *, entries: int, numbers: float = math.inf, besides: Collection[str] = ()
    ) -> None:
        self._held, self._names = held, frozenset((*held, *besides))
        kept = {k: v for k, v in held.items() if k not in besides and _is_kept(v)}
        self._fixed = {k: v for k, v in kept.items() if isinstance(v, FIXED)}
        self._changing = {k: _keep(v, entries, numbers) for k, v in kept.items() if k not in self._fixed}

    def put_back(self, besides: Collection[str] = ()) -> None:
        for name in [n for n, value in self._held.items() if n not in self._names and _is_kept(value)]:
            del self._held[name]
        self._held.update({k: v for k, v in self._fixed.items() if k not in besides})
        with torch.no_grad():
            self._held.update({k: again() for k, again in self._changing.items() if k not in besides})


def stands_somewhere(value: Any) -> bool:
    """Loaders, samplers and datasets, whoever wrote them; those of torch begin anew with every walk, but its samplers
    are told an epoch."""
    kind = type(value)
    if isinstance(value, type | nn.Module) or not hasattr(value, "__dict__"):
        return False
    if kind.__module__.startswith("torch."):
        return isinstance(value, Sampler)
    package = kind.__module__.partition(".")[0]
    if package in sys.stdlib_module_names or package == "torchdoctor":
        return False
    return isinstance(value, Dataset | Sampler) or hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")


def _is_kept(value: Any) -> bool:
    return isinstance(value, (*PLAIN, np.ndarray)) or type(value) in COLLECTIONS


def _keep(value: Any, entries: int, numbers: float, depth: int = 0) -> Callable[[], Any]:
    """A function that gives this very value again, with what is in it now."""
    if isinstance(value, Tensor):
        return _tensor(value) if value.numel() <= numbers and _is_writable(value) else lambda: value
    if isinstance(value, np.ndarray):
        return _array(value) if value.size <= numbers and value.flags.writeable else lambda: value
    if type(value) not in COLLECTIONS or len(value) > entries or depth > NESTED:
        return lambda: value
    keys, parts = list(value), list(value.values()) if isinstance(value, dict) else list(value)
    followed = [_keep(part, entries, numbers, depth + 1) for part in parts] if len(parts) <= FEW else None

    def again() -> Any:
        there = parts if followed is None else [part() for part in followed]
        value.clear()
        if isinstance(value, dict):
            value.update(zip(keys, there, strict=True))
        elif isinstance(value, set):
            value.update(there)
        else:
            value.extend(there)
        return value

    return again


def _is_writable(tensor: Tensor) -> bool:
    """Nobody changes what was expanded, or made under inference mode, in place; nor can it be put back."""
    expanded = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, _strides(tensor), strict=True))
    return not expanded and not tensor.is_inference()


def _strides(tensor: Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout is torch.strided else (1,) * tensor.dim()


def _tensor(value: Tensor) -> Callable[[], Tensor]:
    copied = value.detach().clone()

    def again() -> Tensor:
        value.data.copy_(copied)
        return value

    return again


def _array(value: np.ndarray) -> Callable[[], np.ndarray]:
    copied = value.copy()

    def again() -> np.ndarray:
        value[...] = copied
        return value

    return again
