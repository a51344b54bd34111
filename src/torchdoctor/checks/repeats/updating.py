"""Updates as the training will make them, with what it will make them with; inside an experiment, so for no one."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.checks.bench import Bench

NUDGE = 1e-3
"""Root mean square of an update of what no optimizer is at hand for: about a thousandth is usual."""


def update(bench: Bench, batches: Sequence[Any]) -> list[float]:
    """One update by the batches of it; the loss of each. A schedule that is stepped by the update is stepped, too."""
    scaler = next((s for s in bench.scalers if s.is_enabled()), None)

    def differentiate() -> list[Tensor]:
        for part in (bench.model, *bench.optimizers):
            part.zero_grad(set_to_none=True)
        losses = []
        for batch in batches:
            loss = bench.subject.loss(batch)
            losses.append(loss.detach())
            share = loss / len(batches) if len(batches) > 1 else loss
            if share.requires_grad:
                (scaler.scale(share) if scaler is not None else share).backward()
        return losses

    losses = differentiate()
    if not bench.optimizers:
        nudge(bench.model)
    for optimizer in bench.optimizers:
        if scaler is not None:
            scaler.step(optimizer)
        else:
            step(optimizer, lambda: torch.stack(differentiate()).mean())
    if scaler is not None:
        scaler.update()
    if bench.step_of_schedule == "update":
        for scheduler in bench.schedulers:
            scheduler.step()
    return [float(loss) for loss in losses]


def step(optimizer: Optimizer, again: Callable[[], Tensor]) -> None:
    """One update at the gradients that are there; `again` computes loss and gradients anew, for those that ask for it:
    LBFGS along its line, SAM at the weights that it climbs to."""
    if not wants_closure(optimizer):
        try:
            optimizer.step()
            return
        except Exception as error:  # SAM takes none by default, and then asserts that there is one
            if not isinstance(error, AssertionError) and "closure" not in str(error):
                raise
            _ASKED.add(optimizer)
    optimizer.step(torch.enable_grad()(again))  # type: ignore[arg-type]


def wants_closure(optimizer: Optimizer) -> bool:
    """By the signature of its class (a scheduler wraps that of the object), or because it was seen to."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return optimizer in _ASKED or (closure is not None and closure.default is closure.empty)


_ASKED: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def train(bench: Bench, updates: int, first: int = 0) -> list[float]:
    """So many updates over the batches at hand, from the one of that number on; the mean loss of each."""
    losses = []
    for number in range(first, first + updates):
        size = max(1, bench.accumulation)
        some = [bench.train[(number * size + i) % len(bench.train)] for i in range(size)]
        losses.append(sum(update(bench, some)) / size)
    return losses


@torch.no_grad()
def nudge(model: nn.Module) -> None:
    """Each parameter against its gradient, all by the same size."""
    for parameter in model.parameters():
        gradient: Tensor | None = parameter.grad
        if gradient is None:
            continue
        gradient = gradient.to_dense() if gradient.layout != torch.strided else gradient
        size = gradient.float().square().mean().sqrt()
        if bool(size > 0):
            parameter -= (NUDGE / size * gradient.float()).to(parameter.dtype)
