"""Attaches a peer to a training loop from outside, and calls it at the events at which its user would.

A user writes `Peer(model, optimizer)` above the loop, and one line after the optimizer step. Here, the peer is attached
at the first forward pass after an optimizer of torch.optim was made, and called when that optimizer steps. A program
that uses no such optimizer cannot be attached to.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from field.peers.models import Models, parameters_of
from field.peers.wrapper import Statement, Watch, Wrapper


class Watched:
    """One model that a peer watches, and the optimizer whose steps count."""

    def __init__(self, model: nn.Module, watch: Watch) -> None:
        self.model = model
        self.watch = watch
        self.steps = 0
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self._parameters: frozenset[int] = frozenset()

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps of an optimizer, unless it trains less of the model than the one that is followed."""
        parameters = parameters_of(optimizer)
        if parameters >= self._parameters:
            self._optimizer, self._parameters = weakref.ref(optimizer), parameters

    def is_stepped_by(self, optimizer: torch.optim.Optimizer) -> bool:
        return self._optimizer is not None and self._optimizer() is optimizer


class Loop:
    """Attaches a peer to each model of a program that is trained."""

    def __init__(self, wrapper: Wrapper) -> None:
        self.wrapper = wrapper
        self.watched: dict[int, Watched] = {}
        self._models = Models()
        self._pending: list[tuple[weakref.ref[torch.optim.Optimizer], list[bool]]] = []
        """optimizers to attach to, and which of their parameters required gradients when they were made"""
        self._call = nn.Module.__call__
        self._loss: torch.Tensor | None = None

    def install(self) -> None:
        _after(torch.optim.Optimizer, "__init__", self._await_forward)
        _after(torch.autograd, "backward", self._keep_loss)
        register_optimizer_step_pre_hook(lambda *_: self._attach())
        register_optimizer_step_post_hook(lambda optimizer, *_: self._after_step(optimizer))

    def statements(self) -> Iterator[Statement]:
        for watched in self.watched.values():
            yield from watched.watch.statements()

    def _await_forward(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Attach at the next forward pass: a scheduler made before it wraps the optimizer's own `step`."""
        self._pending.append((weakref.ref(optimizer), [p.requires_grad for p in _parameters(optimizer)]))

        @functools.wraps(self._call)
        def attach_and_call(module: nn.Module, *arguments: Any, **options: Any) -> Any:
            self._attach()
            return self._call(module, *arguments, **options)

        nn.Module.__call__ = attach_and_call  # type: ignore[method-assign]

    def _attach(self) -> None:
        """Attach to the models of the optimizers that were made since the last call."""
        nn.Module.__call__ = self._call  # type: ignore[method-assign]
        pending, self._pending = self._pending, []
        for reference, required in pending:
            optimizer = reference()
            for model in self._models.trained_by(optimizer) if optimizer is not None else ():
                if id(model) not in self.watched:
                    with _requiring(_parameters(optimizer), required):
                        self.watched[id(model)] = Watched(model, self.wrapper.watch(model, optimizer))
                self.watched[id(model)].follow(optimizer)

    def _keep_loss(self, tensors: Any = None, *_: Any, **__: Any) -> None:
        if isinstance(tensors, torch.Tensor) and tensors.numel() == 1 and not tensors.is_complex():
            self._loss = tensors.detach()

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        loss = None if self._loss is None else self._loss.item()
        for watched in self.watched.values():
            if watched.is_stepped_by(optimizer):
                watched.watch.after_step(watched.steps, loss)
                watched.steps += 1


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextmanager
def _requiring(parameters: Sequence[torch.Tensor], required: Sequence[bool]) -> Iterator[None]:
    """Have parameters require gradients as when they were given to the optimizer.

    The first forward pass may find them frozen for a moment: by the turn of another optimizer, or an evaluation.
    """
    changed = [p for p, wanted in zip(parameters, required, strict=False) if p.requires_grad != wanted]
    for parameter in changed:
        parameter.requires_grad_(not parameter.requires_grad)
    try:
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(not parameter.requires_grad)


def _after(owner: Any, name: str, react: Callable[..., None]) -> None:
    """Call `react` with a function's arguments whenever the function has returned."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        react(*arguments, **options)
        return result

    setattr(owner, name, wrapped)
