"""What the learning-rate explorer descends on: surfaces of two parameters, and a small network. All have rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

NOISE = 3.0
"""Deviation of one sample's gradient from that of all, on a surface; a batch of 16 has a quarter."""
STARTS = {"valley": (-1.9, 0.2), "saddle": (1.2, 0.01), "rosenbrock": (-1.2, 1.0)}
"""Rosenbrock's as in his paper of 1960; that of the saddle lies nearly on its ridge."""
WINDOWS = {"valley": (-2.2, 2.2, -1.4, 1.4), "saddle": (-1.6, 1.6, -1.7, 1.7), "rosenbrock": (-1.8, 1.8, -0.9, 2.2)}
TILT = (math.cos(math.pi / 6), math.sin(math.pi / 6))
"""Of the valley: one along an axis would suit optimizers that scale each parameter by itself too well."""
SAMPLES, INPUTS, HIDDEN, CLASSES = 256, 12, 24, 4
POWER = 30
"""Rounds of power iteration for the largest curvature."""


@dataclass
class Surface:
    name: str
    narrow: float
    """curvature across the valley over that along it"""

    @property
    def start(self) -> list[Tensor]:
        return [torch.tensor(STARTS[self.name], dtype=torch.float64)]

    def loss(self, parameters: Sequence[Tensor], step: int = -1) -> Tensor:
        x, y = parameters[0][..., 0], parameters[0][..., 1]
        if self.name == "valley":
            along, across = TILT[0] * x + TILT[1] * y, TILT[0] * y - TILT[1] * x
            return 0.5 * (along.square() + self.narrow * across.square())
        if self.name == "saddle":
            return 0.5 * self.narrow * x.square() + 0.25 * (y.square() - 1).square()
        return (1 - x).square() + self.narrow * (y - x.square()).square()

    def sharpness(self) -> float:
        """The largest curvature at the minimum; for the valley it is the same everywhere."""
        lowest = torch.tensor({"valley": (0.0, 0.0), "saddle": (0.0, 1.0), "rosenbrock": (1.0, 1.0)}[self.name])
        hessian = torch.autograd.functional.hessian(lambda p: self.loss([p]), lowest.double())
        return float(torch.linalg.eigvalsh(hessian)[-1])

    def noise(self, rows: int, batch: int, generator: torch.Generator) -> list[Tensor] | None:
        """The same for all rows: rates are compared on the same batches."""
        if not batch:
            return None
        return [(NOISE / math.sqrt(batch) * torch.randn(2, generator=generator, dtype=torch.float64)).expand(rows, 2)]


@dataclass
class Network:
    """One hidden layer of tanh on inputs whose scales differ by the root of `narrow`: not normalised, that is."""

    narrow: float
    batch: int
    generator: torch.Generator
    start: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        g = self.generator
        plain = torch.randn(SAMPLES, INPUTS, generator=g)
        teacher = torch.randn(INPUTS, CLASSES, generator=g)
        self.labels = (torch.tanh(2 * plain) @ teacher).argmax(dim=1)
        self.inputs = plain * torch.logspace(0, -0.5 * math.log10(self.narrow), INPUTS)
        first = torch.randn(INPUTS, HIDDEN, generator=g) / math.sqrt(INPUTS)
        last = torch.randn(HIDDEN, CLASSES, generator=g) / math.sqrt(HIDDEN)
        self.start = [first, torch.zeros(1, HIDDEN), last, torch.zeros(1, CLASSES)]
        self._batches: dict[int, Tensor] = {}

    def loss(self, parameters: Sequence[Tensor], step: int = -1) -> Tensor:
        """Of the batch of that step, of all samples at -1."""
        first, bias, last, shift = parameters
        x, y = self.inputs, self.labels
        if self.batch and step >= 0:
            if step not in self._batches:
                self._batches[step] = torch.randint(SAMPLES, (self.batch,), generator=self.generator)
            x, y = x[self._batches[step]], y[self._batches[step]]
        scores = torch.tanh(x @ first + bias) @ last + shift
        return -torch.log_softmax(scores, dim=-1)[..., torch.arange(len(y)), y].mean(dim=-1)

    def sharpness(self) -> float:
        """At the start: the largest eigenvalue of the Hessian, by power iteration."""
        leaves = [p.clone().requires_grad_() for p in self.start]
        gradients = torch.autograd.grad(self.loss(leaves), leaves, create_graph=True)
        vectors = [torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for p in leaves]
        value = 0.0
        for _ in range(POWER):
            norm = math.sqrt(sum(float(v.square().sum()) for v in vectors))
            vectors = [v / norm for v in vectors]
            inner = sum((g * v).sum() for g, v in zip(gradients, vectors, strict=True))
            products = torch.autograd.grad(inner, leaves, retain_graph=True)
            value = sum(float((p * v).sum()) for p, v in zip(products, vectors, strict=True))
            vectors = list(products)
        return value

    def noise(self, rows: int, batch: int, generator: torch.Generator) -> list[Tensor] | None:
        """None: its batches are noise enough."""
        return None


Task = Surface | Network
