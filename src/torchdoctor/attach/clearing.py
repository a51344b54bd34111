"""Were the gradients of an update its own? Decided by state, not by calls.

One parameter of each optimizer is watched. If its gradient is None or zero when one of the backwards that add to
it begins, it was cleared since the last update, whoever did it. If every one of them found something there, the
gradients of the last step are in this one too.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals, stats
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context

BACKWARDS_KEPT = 64


@dataclass
class Watch:
    """One optimizer's watched parameter since its last update."""

    parameter: weakref.ref[Tensor]
    zero_grad_called: bool = False
    before: tuple[Any, ...] | None = None
    clean: Tensor | float = 0.0
    """whether the gradient was clean when the backward that runs now began"""
    seen: list[Tensor | float] = field(default_factory=list)
    """the same for each backward that added to the gradient"""


class ClearingCheck:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._watches: dict[str, Watch] = {}

    @contained("clearing: after_step")
    def after_step(self, key: str, optimizer: Optimizer, step: int) -> None:
        """An update was made: say whether its gradients were its own, and watch the next."""
        watch = self._watches.pop(key, None)
        if watch is not None and watch.seen:
            self._write(key, step, watch.seen)
        parameter = watch.parameter() if watch is not None else None
        if parameter is None or parameter.grad is None:
            parameter = _watched_parameter(optimizer)
        if parameter is not None:
            self._watches[key] = Watch(weakref.ref(parameter))

    def forget(self) -> None:
        """A backward went by unseen: of the update that comes nothing can be said."""
        self._watches.clear()

    @contained("clearing: zeroed")
    def zeroed(self, key: str | None) -> None:
        for name, watch in self._watches.items():
            if key in (None, name):
                watch.zero_grad_called = True

    @contained("clearing: before_backward")
    def before_backward(self) -> None:
        for watch in self._watches.values():
            gradient = _gradient(watch)
            watch.before = _state(gradient)
            if gradient is None or watch.zero_grad_called:
                watch.clean = 1.0
            elif watch.seen:
                watch.clean = 0.0  # accumulation: only the first backward can find it clean without a call
            else:
                watch.clean = (gradient.detach() == 0).all().float()

    @contained("clearing: after_backward")
    def after_backward(self) -> None:
        for watch in self._watches.values():
            if _state(_gradient(watch)) != watch.before and len(watch.seen) < BACKWARDS_KEPT:
                watch.seen.append(watch.clean)
                watch.zero_grad_called = False

    def _write(self, key: str, step: int, seen: list[Tensor | float]) -> None:
        name, record = signals.GRADIENTS_CLEARED.name, self._context.record
        if any(clean == 1.0 for clean in seen if not isinstance(clean, Tensor)):
            record.scalar(name, step, 1.0, key)
            return
        tensors = [clean for clean in seen if isinstance(clean, Tensor)]
        if tensors:
            self._context.read(torch.stack(tensors).max(), lambda v: record.scalar(name, step, float(v), key))
        else:
            record.scalar(name, step, 0.0, key)


def _watched_parameter(optimizer: Optimizer) -> Tensor | None:
    """The last matrix with a gradient (near the loss, so its gradient is seldom zero), or the last parameter."""
    candidate: Tensor | None = None
    for group in reversed(optimizer.param_groups):
        for parameter in reversed(group["params"]):
            if parameter.grad is not None and not parameter.grad.is_sparse and stats.unsupported(parameter) is None:
                candidate = candidate if candidate is not None else parameter
                if parameter.dim() >= 2:
                    return parameter
    return candidate


def _gradient(watch: Watch) -> Tensor | None:
    parameter = watch.parameter()
    return parameter.grad if parameter is not None else None


def _state(gradient: Tensor | None) -> tuple[Any, ...]:
    """Changes when a backward adds to the gradient, in place or by a new tensor."""
    return (id(gradient), gradient._version) if gradient is not None else (None, None)
