"""Leave no trace: what an experiment changes is put back, to the bit."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Randomness:
    """The states of all generators that a training draws from, those of the given loaders among them."""

    def __init__(self, *loaders: Any) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._torch = torch.random.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._own = [(g, g.get_state()) for loader in loaders for g in _generators(loader)]

    def put_back(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.random.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for generator, state in self._own:
            generator.set_state(state)


class Trained:
    """A model, its modes and gradients, and what optimizers, schedulers and scalers hold, as they are now."""

    def __init__(self, model: nn.Module, *others: Any) -> None:
        self._modes = [(m, m.training) for m in model.modules()]
        self._tensors = [(t, t.detach().clone()) for t in _tensors_of(model)]
        self._parameters = [
            (p, p.requires_grad, p.grad, None if p.grad is None else p.grad.detach().clone())
            for p in model.parameters()
        ]
        self._optimizers = [_Optimizer(o) for o in others if isinstance(o, Optimizer)]
        self._others = [
            (o, copy.deepcopy(o.state_dict())) for o in others if o is not None and not isinstance(o, Optimizer)
        ]

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.data.copy_(kept)
            for parameter, requires, grad, values in self._parameters:
                parameter.requires_grad_(requires)
                parameter.grad = grad
                if grad is not None and values is not None:
                    grad.data.copy_(values)
        for module, training in self._modes:
            module.training = training
        for optimizer in self._optimizers:
            optimizer.put_back()
        for other, state in self._others:
            other.load_state_dict(copy.deepcopy(state))


class _Optimizer:
    """Settings and state in the very tensors that are in use: whoever holds them sees the old values."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [{k: _copied(v) for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        self._state = {p: {k: (v, _copied(v)) for k, v in s.items()} for p, s in optimizer.state.items()}

    def put_back(self) -> None:
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
            for name in group.keys() - settings.keys() - {"params"}:
                del group[name]
            group.update({k: _copied(v) for k, v in settings.items()})
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


def _generators(loader: Any) -> list[torch.Generator]:
    holders = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _put_back(held: Any, kept: Any) -> Any:
    if not isinstance(held, Tensor):
        return copy.deepcopy(kept)
    held.data.copy_(kept)
    return held
