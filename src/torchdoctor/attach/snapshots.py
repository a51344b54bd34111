"""A copy of weights, buffers and optimizer states in memory, and the way back to it.

Taken again, it writes into the memory it has. Nothing here draws random numbers or adds to a graph, and what is put
back is put into the tensors that are there: whoever holds them sees the old values.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from math import ceil, nan
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import stats
from torchdoctor.attach.registry import Registry
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


def gather(registry: Registry) -> tuple[list[Optimizer], list[Tensor], list[Tensor]]:
    """All optimizers, the weights that they and the models hold, and the models' buffers."""
    optimizers = [o for _, o in registry.live_optimizers()]
    weights = {id(p): p for o in optimizers for group in o.param_groups for p in group["params"]}
    weights |= {id(p): p for _, p in registry.parameters()}
    buffers = [b for _, model in registry.live_models() for b in model.buffers()]
    return optimizers, list(weights.values()), buffers


def is_sound(weights: Sequence[Tensor], buffers: Iterable[Tensor]) -> bool:
    """Worth going back to. A device is waited for once for all buffers."""
    if not is_finite(weights):
        return False
    with Quiet():
        by_device: dict[torch.device, list[Tensor]] = {}
        for buffer in buffers:
            if _may_hold_nan(buffer):
                by_device.setdefault(buffer.device, []).append(_values(buffer).isnan().any())
        return not any(bool(torch.stack(found).any()) for found in by_device.values())


def soundness(weights: Sequence[Tensor], buffers: Iterable[Tensor]) -> Tensor:
    """A number that is finite where the state is worth going back to, on its device: nothing is waited for."""
    with Quiet():
        total = stats.norms([w for w in weights if _may_hold_nan(w)]).sum()
        for buffer in buffers:
            if _may_hold_nan(buffer):
                total = total.masked_fill(_values(buffer).isnan().any().to(total.device, non_blocking=True), nan)
        return total


def holds_nan(tensor: Tensor) -> bool:
    """Buffers may hold -Inf on purpose (masks), but no NaN."""
    if not _may_hold_nan(tensor):
        return False
    with Quiet():
        return bool(_values(tensor).isnan().any())


def _may_hold_nan(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and stats.unsupported(tensor) is None


def _is_finite_exactly(tensor: Tensor) -> bool:
    return stats.unsupported(tensor) is not None or bool(_values(tensor).isfinite().all())


def _values(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    return plain._values() if plain.layout == torch.sparse_coo else plain


EVERY = 10
"""Updates between snapshots, at least: the first steps are short of statistics on what a copy costs."""
SHARE = 0.005
"""Of the time for snapshots: half of a percent, and as much again at the worst for a step that was timed too long."""


class Cadence:
    """After how many updates the next copy is made, so that copies take no more than their share of the time."""

    def __init__(self) -> None:
        self.every = EVERY
        self._since = 0
        self._clock = perf_counter()
        self._each: float | None = None
        """seconds from update to update"""

    def count(self) -> bool:
        """One more update was made; True if a copy is due."""
        self._since += 1
        return self._since >= self.every

    def restart(self) -> None:
        """A copy is made now, or was given up."""
        now = perf_counter()
        if self._since:
            self._each = (now - self._clock) / self._since
        self._since, self._clock = 0, now

    def spent(self, seconds: float) -> None:
        """What the last copy took."""
        if self._each is not None:
            self.every = max(EVERY, ceil(seconds / (SHARE * self._each + 1e-9)))


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
    """All that an update changes, as it was after one of them. `in_host`: copies of a device's tensors are kept in the
    memory of the host, where nobody's training needs the room, and are there when the device has come so far."""

    def __init__(self, limit: int, in_host: bool = False) -> None:
        self._limit = limit
        self._in_host = in_host
        self.step: int | None = None
        """updates that had been made; None while there is nothing to go back to"""
        self._tensors: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._states: dict[int, tuple[weakref.ref[Optimizer], dict[Tensor, Any]]] = {}
        self.nbytes = 0
        self.grew = False
        """the last copy took memory that there was none of before"""

    def take(self, tensors: Iterable[Tensor], optimizers: Sequence[Optimizer], step: int) -> str | None:
        """Copy it all; why not, where it takes more memory than is allowed."""
        held = {id(t): t for t in tensors}
        inside = [t for o in optimizers for state in o.state.values() for t in _tensors_of(state)]
        size = sum(map(self._taken_by, (*held.values(), *inside)))
        if size > self._limit:
            self.step = None
            self._tensors, self._states = {}, {}
            return f"weights and optimizer state take {size / 1e6:.3g} MB, and {self._limit / 1e6:.3g} MB are allowed"
        self.step = None  # until all of it is there
        known = self.places
        with Quiet():
            before, states = self._tensors, self._states
            self._tensors = {
                i: (weakref.ref(t), copied(t, before[i][1] if i in before else None, self._in_host))
                for i, t in held.items()
            }
            self._states = {}
            for optimizer in optimizers:
                _, old = states.get(id(optimizer), (None, {}))
                new = {p: copied(state, old.get(p), self._in_host) for p, state in optimizer.state.items()}
                self._states[id(optimizer)] = (weakref.ref(optimizer), new)
        self.step, self.nbytes, self.grew = step, size, not self.places <= known
        return None

    def _taken_by(self, tensor: Tensor) -> int:
        """Bytes of its copy. Memory that a device copies to comes in powers of two."""
        size = _size(tensor)
        return 1 << (size - 1).bit_length() if self._in_host and tensor.is_cuda and size else size

    @property
    def places(self) -> set[int]:
        """Where in memory its copies lie."""
        inside = [t for _, states in self._states.values() for state in states.values() for t in _tensors_of(state)]
        return {t.untyped_storage().data_ptr() for t in (*(copy for _, copy in self._tensors.values()), *inside)}

    def copy_of(self, tensor: Tensor) -> Tensor | None:
        reference, copy = self._tensors.get(id(tensor), (None, None))
        return copy if reference is not None and reference() is tensor else None

    def state_of(self, optimizer: Optimizer) -> dict[Tensor, Any]:
        reference, states = self._states.get(id(optimizer), (None, {}))
        return states if reference is not None and reference() is optimizer else {}

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


def copied(value: Any, old: Any = None, in_host: bool = False) -> Any:
    """The value with copies of its tensors, in the memory of an earlier copy where that fits. Copies into the memory of
    the host are under way until the device is waited for."""
    if isinstance(value, Tensor):
        plain = value.detach()
        if in_host and plain.is_cuda:
            if not (isinstance(old, Tensor) and old.is_cpu and old.shape == plain.shape and old.dtype == plain.dtype):
                old = torch.empty_like(plain, device="cpu", pin_memory=True)
            return old.copy_(plain, non_blocking=True)
        if isinstance(old, Tensor) and _alike(plain, old):
            return old.copy_(plain)
        return plain.clone()
    if isinstance(value, dict):
        olds = old if isinstance(old, dict) else {}
        return {k: copied(v, olds.get(k), in_host) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(v, None, in_host) for v in value)
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


def _tensors_of(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors_of(inner)
    elif type(value) in (list, tuple):
        for inner in value:
            yield from _tensors_of(inner)
