"""A copy of weights, buffers and optimizer states in memory, and the way back to it.

Taken again, it writes into the memory it has. Nothing here draws random numbers or adds to a graph, and what is put
back is put into the tensors that are there: whoever holds them sees the old values.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import stats
from torchdoctor.stats.support import Quiet


def is_finite(tensors: Sequence[Tensor]) -> bool:
    """No NaN and no Inf in any of them. What cannot be looked into passes."""
    return not broken(tensors)


def broken(tensors: Sequence[Tensor]) -> list[int]:
    """Which of them hold NaN or Inf: one pass over memory, and a second where the first has doubts.

    Norms of finite numbers may overflow, and a tensor that has no norm gives NaN: both are looked at again.
    """
    if not tensors:
        return []
    total = float(stats.norms(tensors).sum())
    if total - total == 0.0:
        return []
    with Quiet():
        return [i for i, tensor in enumerate(tensors) if not _is_finite_exactly(tensor)]


def holds_nan(tensor: Tensor) -> bool:
    """Buffers may hold -Inf on purpose (masks), but no NaN."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or stats.unsupported(tensor) is not None:
        return False
    with Quiet():
        return bool(_values(tensor).isnan().any())


def _is_finite_exactly(tensor: Tensor) -> bool:
    return stats.unsupported(tensor) is not None or bool(_values(tensor).isfinite().all())


def _values(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    return plain._values() if plain.layout == torch.sparse_coo else plain


SMALL = 1 << 16
"""Bytes of a buffer that is copied after every update: batch normalisation writes into its own, and torch does not
count that as a change. Larger ones (tables, masks) are copied when their version has changed."""


class Buffers:
    """What models hold beside their weights, as it was after the last update."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._kept: dict[int, tuple[weakref.ref[Tensor], Tensor, int]] = {}
        """the buffer, its copy, and the version that was copied"""

    def watch(self, buffers: Iterable[Tensor]) -> None:
        """From now on these, as far as there is room."""
        alive = {id(b): b for b in buffers}
        self._kept = {i: kept for i, kept in self._kept.items() if kept[0]() is alive.get(i)}
        self._bytes = sum(_size(copy) for _, copy, _ in self._kept.values())
        with Quiet():
            for i, buffer in alive.items():
                if i not in self._kept and self._bytes + _size(buffer) <= self._limit:
                    self._kept[i] = (weakref.ref(buffer), buffer.detach().clone(), buffer._version)
                    self._bytes += _size(buffer)

    def keep(self) -> None:
        with Quiet():
            for i, (reference, copy, version) in self._kept.items():
                buffer = reference()
                if buffer is not None and _may_differ(buffer, copy, version):
                    copy.copy_(buffer)
                    if buffer._version != version:
                        self._kept[i] = (reference, copy, buffer._version)

    def put_back(self) -> None:
        with Quiet():
            for reference, copy, version in self._kept.values():
                buffer = reference()
                if buffer is not None and _may_differ(buffer, copy, version):
                    buffer.data.copy_(copy)


def _may_differ(buffer: Tensor, copy: Tensor, version: int) -> bool:
    return (_size(copy) <= SMALL or buffer._version != version) and buffer.shape == copy.shape


class Snapshot:
    """All that an update changes, as it was after one of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.step: int | None = None
        """updates that had been made; None while there is nothing to go back to"""
        self._tensors: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._states: dict[int, tuple[weakref.ref[Optimizer], dict[Tensor, Any]]] = {}

    def take(self, tensors: Iterable[Tensor], optimizers: Sequence[Optimizer], step: int) -> str | None:
        """Copy it all; why not, where it takes more memory than is allowed."""
        held = {id(t): t for t in tensors}
        size = sum(map(_size, held.values())) + sum(_state_size(o) for o in optimizers)
        if size > self._limit:
            self.step = None
            self._tensors, self._states = {}, {}
            return f"weights and optimizer state take {size / 1e6:.0f} MB, and {self._limit / 1e6:.0f} MB are allowed"
        self.step = None  # until all of it is there
        with Quiet():
            before, states = self._tensors, self._states
            self._tensors = {
                i: (weakref.ref(t), _copied(t, before[i][1] if i in before else None)) for i, t in held.items()
            }
            self._states = {}
            for optimizer in optimizers:
                _, old = states.get(id(optimizer), (None, {}))
                new = {p: _copied(state, old.get(p)) for p, state in optimizer.state.items()}
                self._states[id(optimizer)] = (weakref.ref(optimizer), new)
        self.step = step
        return None

    def put_back(self) -> None:
        with Quiet():
            for reference, copy in self._tensors.values():
                tensor = reference()
                if tensor is not None and tensor.shape == copy.shape:
                    tensor.data.copy_(copy)
            for held, states in self._states.values():
                optimizer = held()
                if optimizer is not None:
                    _put_back_state(optimizer, states)


def _put_back_state(optimizer: Optimizer, states: dict[Tensor, Any]) -> None:
    current = dict(optimizer.state)
    optimizer.state.clear()
    for parameter, state in states.items():
        optimizer.state[parameter] = _restored(state, current.get(parameter))


def _copied(value: Any, old: Any) -> Any:
    """The value with copies of its tensors, in the memory of an earlier copy where that fits."""
    if isinstance(value, Tensor):
        plain = value.detach()
        if isinstance(old, Tensor) and _alike(plain, old):
            return old.copy_(plain)
        return plain.clone()
    if isinstance(value, dict):
        olds = old if isinstance(old, dict) else {}
        return {k: _copied(v, olds.get(k)) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(v, None) for v in value)
    return value


def _restored(saved: Any, current: Any) -> Any:
    """The other way: saved values in the tensors that are in use. The copy stays whole, to be used again."""
    if isinstance(saved, Tensor):
        if isinstance(current, Tensor) and _alike(current, saved):
            current.data.copy_(saved)
            return current
        return saved.clone()
    if isinstance(saved, dict):
        currents = current if isinstance(current, dict) else {}
        return {k: _restored(v, currents.get(k)) for k, v in saved.items()}
    if type(saved) in (list, tuple):
        return type(saved)(_restored(v, None) for v in saved)
    return saved


def _alike(a: Tensor, b: Tensor) -> bool:
    return type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype and a.device == b.device


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _state_size(optimizer: Optimizer) -> int:
    return sum(_size(t) for state in optimizer.state.values() for t in _tensors_of(state))


def _tensors_of(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors_of(inner)
    elif type(value) in (list, tuple):
        for inner in value:
            yield from _tensors_of(inner)
