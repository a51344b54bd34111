"""Leave no trace: what an experiment changes is put back, to the bit."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from types import ModuleType, NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

PLAIN = (bool, int, float, complex, str, bytes, NoneType, Tensor)
"""Attributes of a module that are put back: counters, caches, hidden states. Others are changed in place, if at all."""
DEPTH, FEW = 4, 32
"""How far generators are looked for in what a loader holds, and in how long a list: transforms, not samples."""


class Randomness:
    """The states of all generators that a training draws from, those of the given loaders and datasets among them."""

    def __init__(self, *loaders: Any) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._torch = torch.random.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._own = [(g, _state_of(g)) for loader in loaders for g in _generators(loader)]

    def put_back(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.random.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for generator, state in self._own:
            _set_state(generator, state)


class Trained:
    """A model, its modes and gradients, and what optimizers, schedulers and scalers hold, as they are now."""

    def __init__(self, model: nn.Module, *others: Any) -> None:
        self._bearing = Bearing(model)
        self._tensors = [(t, t.detach().clone()) for t in _tensors_of(model)]
        self._parameters = [
            (p, p.requires_grad, p.grad, None if p.grad is None else p.grad.detach().clone())
            for p in model.parameters()
            if not nn.parameter.is_lazy(p)
        ]
        self._optimizers = [_Optimizer(o) for o in others if isinstance(o, Optimizer)]
        self._others = [
            (o, copy.deepcopy(o.state_dict())) for o in others if o is not None and not isinstance(o, Optimizer)
        ]

    def put_back(self) -> None:
        self._bearing.put_back()
        with torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.data.copy_(kept)
            for parameter, requires, grad, values in self._parameters:
                parameter.requires_grad_(requires)
                parameter.grad = grad
                if grad is not None and values is not None:
                    grad.data.copy_(values)
        for optimizer in self._optimizers:
            optimizer.put_back()
        for other, state in self._others:
            other.load_state_dict(copy.deepcopy(state))


class Bearing:
    """The modes of all modules, which tensors are their buffers, and plain attributes: forward() may put others in
    their place. What is in the tensors is another matter."""

    def __init__(self, model: nn.Module) -> None:
        scripted = torch.jit.ScriptModule
        self._modes = [(m, m.training) for m in model.modules()]
        self._buffers = [(m._buffers, dict(m._buffers)) for m, _ in self._modes if not isinstance(m, scripted)]
        # Modules of torch keep their own books, as those of several processes do; a user's are counters and caches.
        users = [m for m, _ in self._modes if not type(m).__module__.startswith("torch.")]
        self._plain = [(m, {k: v for k, v in vars(m).items() if isinstance(v, PLAIN)}) for m in users]

    def put_back(self) -> None:
        for held, buffers in self._buffers:
            for name in held.keys() - buffers.keys():
                del held[name]
            held.update(buffers)
        for module, plain in self._plain:
            registered = module._parameters.keys() | module._modules.keys() | module._buffers.keys()
            vars(module).update({k: v for k, v in plain.items() if k not in registered})
        for module, training in self._modes:
            module.training = training


class _Optimizer:
    """Settings and state in the very tensors that are in use: whoever holds them sees the old values."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [{k: (v, _copied(v)) for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        self._state = {p: {k: (v, _copied(v)) for k, v in s.items()} for p, s in optimizer.state.items()}

    def put_back(self) -> None:
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
            for name in group.keys() - settings.keys() - {"params"}:
                del group[name]
            group.update({k: _put_back(held, kept) for k, (held, kept) in settings.items()})
        self._optimizer.state.clear()
        with torch.no_grad():
            for parameter, state in self._state.items():
                self._optimizer.state[parameter] = {k: _put_back(held, kept) for k, (held, kept) in state.items()}


@contextlib.contextmanager
def untouched(model: nn.Module, *others: Any, loaders: tuple[Any, ...] = ()) -> Iterator[None]:
    """Whatever is done inside leaves model, optimizers, schedulers, scalers and random states as they were."""
    randomness, trained = Randomness(*loaders), Trained(model, *others)
    try:
        yield
    finally:
        trained.put_back()
        randomness.put_back()


def _tensors_of(model: nn.Module) -> list[Tensor]:
    found = {id(t): t for t in (*model.parameters(), *model.buffers()) if not nn.parameter.is_lazy(t)}
    return list(found.values())


def _generators(loader: Any) -> list[Any]:
    """Of torch, numpy and Python, in the loader, its samplers, its dataset and the transforms of that."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    held, depth = [loader], 0
    while held and depth <= DEPTH:
        fresh = [v for v in held if id(v) not in seen]
        seen.update(map(id, fresh))
        found.update({id(v): v for v in fresh if isinstance(v, torch.Generator | np.random.Generator | random.Random)})
        found.update({id(v): v for v in fresh if isinstance(v, np.random.RandomState)})
        held, depth = [p for v in fresh for p in _parts(v) if not isinstance(p, PLAIN)], depth + 1
    return list(found.values())


def _parts(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value) if len(value) <= FEW else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= FEW else []
    if isinstance(value, type | ModuleType | Tensor | np.ndarray | random.Random):
        return []
    return list(getattr(value, "__dict__", {}).values())


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


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _put_back(held: Any, kept: Any) -> Any:
    if not isinstance(held, Tensor):
        return copy.deepcopy(kept)
    held.data.copy_(kept)
    return held
