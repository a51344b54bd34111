"""The mean loss of some fixed batches as a function of the weights: moved, differentiated, and always the same batches
with the same random numbers, so that two values differ by the weights alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.subject import Subject
from torchdoctor.probes.directions import filter_noise

Direction = list[Tensor]
"""One tensor for each parameter of a surface."""


class Surface:
    """Use it inside `untouched(*subject.parts)`: it moves weights and changes modes, and puts nothing back itself."""

    def __init__(self, subject: Subject, batches: Sequence[Any], *, training: bool = False) -> None:
        self.subject = subject
        self.parameters = _moved(subject.model)
        subject.model.train(training)
        self._batches = batches
        sizes = [samples_in(b) or 1 for b in batches]
        self._shares = [size / sum(sizes) for size in sizes]
        self._randomness = Randomness()
        self.origin = [p.detach().clone() for p in self.parameters]

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters)

    def loss(self) -> float:
        """At the weights as they are now."""
        with torch.no_grad():
            return math.fsum(share * float(self._loss(batch)) for batch, share in self._shared())

    def gradient(self) -> Direction:
        total = [torch.zeros_like(p) for p in self.parameters]
        for batch, share in self._shared():
            found = torch.autograd.grad(self._loss(batch), self.parameters, allow_unused=True)
            _add(total, found, share)
        return total

    def product(self, direction: Direction) -> Direction:
        """The Hessian times this direction, by differentiating twice; a RuntimeError where that cannot be done."""
        total = [torch.zeros_like(p) for p in self.parameters]
        with twice_differentiable(self.subject.model):
            for batch, share in self._shared():
                first = torch.autograd.grad(
                    self._loss(batch), self.parameters, create_graph=True, allow_unused=True, materialize_grads=True
                )
                slope = sum((g * d).sum() for g, d in zip(first, direction, strict=True))
                if not isinstance(slope, Tensor) or not slope.requires_grad:
                    raise RuntimeError("the gradient has no graph of its own")
                _add(total, torch.autograd.grad(slope, self.parameters, allow_unused=True), share)
        return total

    def move(self, *steps: tuple[float, Direction]) -> None:
        """To the origin and from there so far along each of these directions."""
        with torch.no_grad():
            for i, (parameter, own) in enumerate(zip(self.parameters, self.origin, strict=True)):
                there = own.float() if own.dtype in (torch.float16, torch.bfloat16) else own
                for length, direction in steps:
                    there = there + length * direction[i]
                parameter.copy_(there)

    def random_direction(self, generator: torch.Generator) -> Direction:
        """Scaled by filters. Biases and the vectors of norms stay, unless there is nothing else."""
        matrices = any(p.dim() > 1 for p in self.parameters)
        return [
            torch.zeros_like(own) if matrices and own.dim() < 2 else filter_noise(own, generator) for own in self.origin
        ]

    def _shared(self) -> Iterator[tuple[Any, float]]:
        self._randomness.put_back()
        yield from zip(self._batches, self._shares, strict=True)

    def _loss(self, batch: Any) -> Tensor:
        loss = self.subject.loss(batch)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise UsageError("the loss does not depend on any weight; was it detached, or computed under no_grad?")
        return loss


@contextlib.contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Fused attention and cuDNN's recurrent layers have no second derivative; their plain forms have."""
    recurrent = any(isinstance(m, nn.RNNBase) for m in model.modules())
    plain = torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext()
    with sdpa_kernel(SDPBackend.MATH), plain:
        yield


def length_of(direction: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(d.detach().double().square().sum()) for d in direction))


def _moved(model: nn.Module) -> list[nn.Parameter]:
    """What is trained; all, where nothing is."""
    floating = [p for p in model.parameters() if p.is_floating_point()]
    chosen = [p for p in floating if p.requires_grad] or floating
    if not any(p.numel() for p in chosen):
        raise UsageError("the model has no parameter of a floating-point type; there is nothing to move")
    for parameter in chosen:
        parameter.requires_grad_(True)
    return chosen


def _add(total: Direction, found: Sequence[Tensor | None], share: float) -> None:
    for sum_, part in zip(total, found, strict=True):
        if part is not None:
            sum_.add_(part.detach(), alpha=share)
