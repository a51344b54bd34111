"""One batch's loss along a step: that of the training's own optimizer, parts of it, and the plain negative gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.model.influence import reseed
from torchdoctor.checks.repeats.updating import step
from torchdoctor.facts import ClipFact

FRACTIONS = tuple(4.0**-k for k in range(1, 9))
"""Of an update that are tried, down to 1/65536."""
RELATIVE = (1e-2, 1e-3, 1e-4, 1e-5)
"""Lengths of a step along the gradient, over that of the weights."""
ROUNDING = 16
"""Units in the last place by which a loss may differ for no reason."""


@dataclass
class Slope:
    """The loss, its gradient and the weights at the start."""

    bench: Bench
    batch: Any
    loss: float = math.nan
    resolution: float = 0.0
    """differences below are rounding"""
    parameters: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    gradient: list[Tensor] = field(default_factory=list)
    attached: bool = False
    """the loss has a graph"""

    @classmethod
    def of(cls, bench: Bench, batch: Any) -> Slope:
        slope = cls(bench, batch)
        bench.model.train()
        held = [p for o in bench.optimizers for group in o.param_groups for p in group["params"]]
        found = {id(p): p for p in (*bench.model.parameters(), *held) if p.requires_grad}
        slope.parameters = list(found.values())
        slope.weights = [p.detach().clone() for p in slope.parameters]
        loss = slope.backward()
        slope.loss, slope.attached = float(loss.detach()), loss.requires_grad
        slope.resolution = ROUNDING * torch.finfo(loss.dtype).eps * abs(slope.loss)
        slope.gradient = [torch.zeros_like(p) if p.grad is None else _dense(p.grad) for p in slope.parameters]
        return slope

    @property
    def size(self) -> float:
        return _length(self.gradient)

    def value(self) -> float:
        """The loss at the weights as they are, with the same random numbers every time."""
        reseed()
        return float(self.bench.subject.loss(self.batch).detach())

    def backward(self) -> Tensor:
        for parameter in self.parameters:
            parameter.grad = None
        reseed()
        loss = self.bench.subject.loss(self.batch)
        if loss.requires_grad:
            loss.backward()
        return loss

    def step(self) -> None:
        """One update by the optimizers at the gradients there are, clipped as the script clips them."""
        clip = self.bench.run.last_fact(ClipFact) if self.bench.run is not None else None
        if clip is not None and clip.how == "norm":
            torch.nn.utils.clip_grad_norm_(self.parameters, clip.threshold, clip.norm_type or 2.0)
        elif clip is not None:
            torch.nn.utils.clip_grad_value_(self.parameters, clip.threshold)
        for optimizer in self.bench.optimizers:
            step(optimizer, self.backward)

    def update(self) -> list[Tensor]:
        """What the optimizers would add to the weights; these are back where they were."""
        self.step()
        made = [p.detach() - w for p, w in zip(self.parameters, self.weights, strict=True)]
        self.back()
        return made

    def back(self) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, self.weights, strict=True):
                parameter.data.copy_(weight)

    def go(self, direction: list[Tensor], share: float = 1.0) -> None:
        with torch.no_grad():
            for parameter, weight, part in zip(self.parameters, self.weights, direction, strict=True):
                parameter.data.copy_(weight + share * part)

    def along(self, direction: list[Tensor], share: float) -> float:
        """The loss so far along a direction."""
        self.go(direction, share)
        value = self.value()
        self.back()
        return value

    def fraction(self, update: list[Tensor]) -> float | None:
        """The largest part of an update that lowers the loss."""
        return next((f for f in FRACTIONS if self.is_lower(self.along(update, f))), None)

    def falls_along(self, direction: float) -> bool:
        """Some short step along the gradient (with -1 against it) lowers the loss."""
        length = max(_length(self.weights), 1e-3) / self.size
        return any(self.is_lower(self.along(self.gradient, direction * share * length)) for share in RELATIVE)

    def is_tamed(self, update: list[Tensor]) -> bool:
        """With the gradient clipped to a length of one, as it may be for all we know, the update lowers the loss."""
        return self.bench.run is None and self.size > 1 and self.is_lower(self.along(update, 1 / self.size))

    def is_lower(self, value: float) -> bool:
        return self.loss - value > self.resolution

    def rise_along(self, update: list[Tensor]) -> float:
        """Cosine of an update with the gradient: negative where it goes down."""
        dot = sum(float((u * g).sum()) for u, g in zip(update, self.gradient, strict=True))
        return dot / max(_length(update) * self.size, 1e-300)


def is_nothing(update: list[Tensor]) -> bool:
    return not any(bool(part.any()) for part in update)


def _dense(gradient: Tensor) -> Tensor:
    gradient = gradient.detach()
    return gradient.to_dense().clone() if gradient.layout != torch.strided else gradient.clone()


def _length(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(t.detach().double().square().sum()) for t in tensors))
