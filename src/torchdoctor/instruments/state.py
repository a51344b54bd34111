"""Leave no trace: what an experiment changes is put back, to the bit."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from torchdoctor.instruments.attributes import PLAIN, Attributes, stands_somewhere

DEPTH, FEW = 4, 32
"""How far generators are looked for in what a loader holds, and in how long a list: transforms, not samples."""
OF_MODULES = frozenset(vars(nn.Module()))
"""What every module has: modes, parameters, buffers and hooks are put back, or taken off, by themselves."""
OF_OPTIMIZERS = frozenset(("defaults", "param_groups", "state"))
LONG = 10_000
"""Entries up to which a list or dict of a module is kept: a history, not a vocabulary. It is copied at every step of a
sweep."""
ORDER = 1_000_000
"""The same for what a loader holds, in numbers of an array, too: an order that is shuffled in place, not the data."""


class Randomness:
    """The states of all generators that a training draws from, those of the given loaders and datasets among them, and
    where these stand: some count epochs, or go on from where they were left."""

    def __init__(self, *loaders: Any) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._torch = torch.random.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        reached = [value for loader in loaders for value in _reached(loader)]
        self._own = [(g, _state_of(g)) for g in reached if _is_generator(g)]
        standing = [value for value in reached if stands_somewhere(value)]
        self._places = [Attributes(vars(v), entries=ORDER, numbers=ORDER) for v in standing]
        self._told = [(v, state) for v in standing if (state := _told_state(v)) is not None]

    def put_back(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.random.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for generator, state in self._own:
            _set_state(generator, state)
        for holder, state in self._told:
            holder.load_state_dict(copy.deepcopy(state))
        for place in self._places:  # last: to load a state may mean to go on from there, once
            place.put_back()


class Trained:
    """Models, and losses that are modules, with their modes and gradients; and what optimizers, schedulers and scalers
    hold, the parameters of optimizers among it: all as they are now."""

    def __init__(self, model: nn.Module, *others: Any) -> None:
        modules = [model, *(o for o in others if isinstance(o, nn.Module))]
        optimizers = _with_inner([o for o in others if isinstance(o, Optimizer) or hasattr(o, "param_groups")])
        held = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        parameters = _distinct([*(p for m in modules for p in m.parameters()), *held])
        self._bearing = Bearing(*modules)
        self._tensors = [
            (t, t.detach().clone()) for t in _distinct([*parameters, *(b for m in modules for b in m.buffers())])
        ]
        self._parameters = [
            (p, p.requires_grad, p.grad, None if p.grad is None else p.grad.detach().clone()) for p in parameters
        ]
        self._optimizers = [_Optimizer(o) for o in optimizers if isinstance(o, Optimizer)]
        self._others = [
            (o, copy.deepcopy(o.state_dict()))
            for o in others
            if o is not None and not isinstance(o, Optimizer | nn.Module)
        ]

    def put_back(self) -> None:
        for other, state in self._others:
            other.load_state_dict(copy.deepcopy(state))
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


class Bearing:
    """The modes of all modules, which tensors are their buffers, and plain attributes: forward() may put others in
    their place, or change what is in these. What is in parameters and buffers is another matter."""

    def __init__(self, *models: nn.Module) -> None:
        scripted = torch.jit.ScriptModule
        self._modes = [(m, m.training) for model in models for m in model.modules()]
        self._buffers = [(m._buffers, dict(m._buffers)) for m, _ in self._modes if not isinstance(m, scripted)]
        # Modules of torch keep their own books, as those of several processes do; a user's are counters and caches.
        users = [m for m, _ in self._modes if not type(m).__module__.startswith("torch.")]
        self._plain = [(m, Attributes(vars(m), entries=LONG, besides=OF_MODULES)) for m in users]

    def put_back(self) -> None:
        for held, buffers in self._buffers:
            for name in held.keys() - buffers.keys():
                del held[name]
            held.update(buffers)
        for module, plain in self._plain:
            plain.put_back(besides=module._parameters.keys() | module._modules.keys() | module._buffers.keys())
        for module, training in self._modes:
            module.training = training


class _Optimizer:
    """Settings and state in the very tensors that are in use: whoever holds them sees the old values. Attributes beside
    them, too: by `_opt_called` a scheduler knows whether training has begun."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [{k: (v, _copied(v)) for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        self._state = {p: _Entry(s) for p, s in optimizer.state.items()}
        self._attributes = Attributes(vars(optimizer), entries=LONG, besides=OF_OPTIMIZERS)

    def put_back(self) -> None:
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
            for name in group.keys() - settings.keys() - {"params"}:
                del group[name]
            group.update({k: _put_back(held, kept) for k, (held, kept) in settings.items()})
        self._optimizer.state.clear()
        with torch.no_grad():
            for parameter, entry in self._state.items():
                self._optimizer.state[parameter] = entry.put_back()
            self._attributes.put_back()


class _Entry:
    """Of an optimizer's state: what it keeps for a parameter, or under a name for all of them."""

    def __init__(self, value: Any) -> None:
        self._named = isinstance(value, Mapping)
        self._kept = {k: (v, _copied(v)) for k, v in (value.items() if self._named else [("", value)])}

    def put_back(self) -> Any:
        values = {k: _put_back(held, kept) for k, (held, kept) in self._kept.items()}
        return values if self._named else values[""]


def _with_inner(optimizers: list[Any]) -> list[Any]:
    """These, and those that they hold: SAM and Lookahead drive another one."""
    found: dict[int, Any] = {}
    waiting = list(optimizers)
    while waiting:
        optimizer = waiting.pop(0)
        if id(optimizer) in found:
            continue
        found[id(optimizer)] = optimizer
        for value in getattr(optimizer, "__dict__", {}).values():
            waiting += [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, Optimizer)]
    return list(found.values())


@contextlib.contextmanager
def untouched(model: nn.Module, *others: Any, loaders: tuple[Any, ...] = ()) -> Iterator[None]:
    """Whatever is done inside leaves model, optimizers, schedulers, scalers, random states and loaders as they were.
    Modules among the others (a loss with parameters) count as the model does: hand over `*subject.parts`."""
    randomness, trained = Randomness(*loaders), Trained(model, *others)
    try:
        yield
    finally:
        trained.put_back()
        randomness.put_back()


def _distinct(tensors: list[Any]) -> list[Any]:
    return list({id(t): t for t in tensors if not nn.parameter.is_lazy(t)}.values())


def _reached(loader: Any) -> list[Any]:
    """The loader, its samplers, its dataset, the transforms of that, and the generators of all."""
    reached: dict[int, Any] = {}
    held, depth = [loader], 0
    while held and depth <= DEPTH:
        fresh = {id(v): v for v in held if id(v) not in reached}
        reached.update(fresh)
        held, depth = [p for v in fresh.values() for p in _parts(v) if not isinstance(p, PLAIN)], depth + 1
    return list(reached.values())


def _is_generator(value: Any) -> bool:
    return isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random)


def _told_state(holder: Any) -> Any:
    """Where it says itself that it stands, None where it does not. A DataLoader would start its workers to tell, and
    walks from the beginning anyway."""
    if isinstance(holder, DataLoader) or not callable(getattr(holder, "load_state_dict", None)):
        return None
    try:
        return copy.deepcopy(holder.state_dict())
    except Exception:
        return None  # of a kind that tells only under way; its attributes are kept all the same


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
