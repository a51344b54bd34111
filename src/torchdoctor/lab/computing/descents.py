"""Many descents at once, one a rate: torch's optimizers by their formulas, with a rate of its own for each row.

torch.optim takes one number for the rate; a sweep by it would cost as many trainings as it has rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchdoctor.lab.computing.optimizers import MOMENTUM

BETAS, SMOOTHING, EPSILON, DECAY = (0.9, 0.999), 0.99, 1e-8, 0.01
"""torch's own defaults: of Adam and AdamW, of RMSprop, of all three, of AdamW."""

Loss = Callable[[Sequence[Tensor], int], Tensor]
"""Of the parameters at a step: the loss of each row."""


@dataclass
class Descents:
    """`parameters` have a row for each descent; `rates` is (rows, steps)."""

    optimizer: str
    parameters: list[Tensor]
    rates: Tensor
    _first: list[Tensor] = field(init=False)
    _second: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._first = [torch.zeros_like(p) for p in self.parameters]
        self._second = [torch.zeros_like(p) for p in self.parameters]

    def step(self, number: int, gradients: Sequence[Tensor]) -> None:
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            rate = self.rates[:, number].view(-1, *[1] * (p.dim() - 1))
            if self.optimizer == "adamw":
                p.mul_(1 - rate * DECAY)
            p.sub_(rate * self._direction(i, number, g))

    def _direction(self, i: int, number: int, g: Tensor) -> Tensor:
        first, second = self._first[i], self._second[i]
        if self.optimizer == "momentum":
            return first.mul_(MOMENTUM).add_(g)
        if self.optimizer == "rmsprop":
            second.mul_(SMOOTHING).add_((1 - SMOOTHING) * g * g)
            return g / (second.sqrt() + EPSILON)
        if self.optimizer in ("adam", "adamw"):
            slow, slower = BETAS
            first.mul_(slow).add_((1 - slow) * g)
            second.mul_(slower).add_((1 - slower) * g * g)
            unbiased = second / (1 - slower ** (number + 1))
            return first / (1 - slow ** (number + 1)) / (unbiased.sqrt() + EPSILON)
        return g


def descend(
    optimizer: str,
    start: Sequence[Tensor],
    rates: Tensor,
    loss: Loss,
    noise: Callable[[int], Sequence[Tensor] | None],
    watch: Callable[[int, Sequence[Tensor]], None],
) -> Tensor:
    """The losses of all rows before each step, (rows, steps). `start` is one row's; `watch` sees the parameters before
    each step and after the last one; `noise` is added to the gradients."""
    rows, steps = rates.shape
    begun = [p.detach().expand(rows, *p.shape).clone() for p in start]
    descents = Descents(optimizer, begun, rates)
    losses = []
    for number in range(steps):
        watch(number, begun)
        leaves = [p.detach().requires_grad_() for p in begun]
        each = loss(leaves, number)
        gradients = torch.autograd.grad(each.sum(), leaves)
        losses.append(each.detach())
        added = noise(number)
        with torch.no_grad():
            descents.step(number, [g + n for g, n in zip(gradients, added, strict=True)] if added else gradients)
    watch(steps, begun)
    return torch.stack(losses, dim=1)
