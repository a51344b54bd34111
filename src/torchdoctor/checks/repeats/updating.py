"""Updates as the training will make them, with what it will make them with; inside an experiment, so for no one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.checks.bench import Bench

NUDGE = 1e-3
"""Root mean square of an update of what no optimizer is at hand for: about a thousandth is usual."""


def update(bench: Bench, batches: Sequence[Any]) -> list[float]:
    """One update by the batches of it; the loss of each. A schedule that is stepped by the update is stepped, too."""
    for parameter in bench.model.parameters():
        parameter.grad = None
    for optimizer in bench.optimizers:
        optimizer.zero_grad(set_to_none=True)
    scaler = next((s for s in bench.scalers if s.is_enabled()), None)
    losses = []
    for batch in batches:
        loss = bench.subject.loss(batch)
        losses.append(loss.detach())
        share = loss / len(batches) if len(batches) > 1 else loss
        if share.requires_grad:
            (scaler.scale(share) if scaler is not None else share).backward()
    if not bench.optimizers:
        nudge(bench.model)
    for optimizer in bench.optimizers:
        _ = scaler.step(optimizer) if scaler is not None else optimizer.step()
    if scaler is not None:
        scaler.update()
    if bench.step_of_schedule == "update":
        for scheduler in bench.schedulers:
            scheduler.step()
    return [float(loss) for loss in losses]


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
