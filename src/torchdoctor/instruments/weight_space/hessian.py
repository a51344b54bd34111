"""The largest and the smallest eigenvalue of the Hessian, by Lanczos on products of it with a vector.

The Hessian itself is never formed. One product costs about two training steps over the batches; the vectors of all
iterations are kept and orthogonalised against, so memory is the model's weights times the iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchdoctor.instruments.progress import Advance
from torchdoctor.instruments.weight_space.surface import Direction, Surface, length_of

LEAST = 1e-6
"""A next vector shorter than this share of the last product is rounding (of float32): the space is exhausted."""


@dataclass(frozen=True)
class Extremes:
    """The ends of a spectrum."""

    largest: float
    smallest: float
    largest_error: float
    """an eigenvalue lies within this distance of `largest`"""
    smallest_error: float
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Curvature(Extremes):
    """Those of the Hessian."""

    along_gradient: float
    """second derivative along the gradient"""
    exact: bool
    """by differentiating twice; else by the difference of gradients nearby"""


def measure_curvature(
    surface: Surface,
    gradient: Direction,
    *,
    iterations: int,
    tolerance: float,
    generator: torch.Generator,
    advance: Advance,
) -> Curvature:
    """At the surface's weights as they are now."""
    product, exact = _product_of(surface, gradient)
    length = length_of(gradient)
    along = 0.0
    if length > 0:
        unit = [g / length for g in gradient]
        along = float(sum((a * b).sum() for a, b in zip(unit, product(unit), strict=True)))

    def flat_product(vector: Tensor) -> Tensor:
        advance()
        return torch.cat([d.reshape(-1).to(vector) for d in product(_shaped(vector, surface))])

    wide = any(p.dtype == torch.float64 for p in surface.parameters)
    dtype = torch.float64 if wide else torch.float32
    start = torch.randn(surface.size, generator=generator, dtype=dtype, device="cpu")
    found = find_extremes(flat_product, start.to(surface.subject.device), iterations, tolerance)
    return Curvature(**vars(found), along_gradient=along, exact=exact)


def find_extremes(product: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float) -> Extremes:
    """Of a symmetric matrix that is only known by its products. Stops when both errors are below the tolerance, as
    a share of the eigenvalue that is larger in size."""
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        image = product(basis[-1])
        diagonal.append(float(torch.dot(image, basis[-1])))
        rest = _orthogonal(image, basis)
        following = float(rest.norm())
        values, last = _ritz(diagonal, beside)
        size = float(np.abs(values).max())
        exhausted = following <= LEAST * max(size, float(image.norm())) or len(basis) >= start.numel()
        errors = np.zeros(2) if exhausted else following * np.abs(last[[-1, 0]])
        done = bool((errors <= tolerance * size).all())
        if done or len(basis) >= iterations or not math.isfinite(size):
            return Extremes(float(values[-1]), float(values[0]), float(errors[0]), float(errors[1]), len(basis), done)
        beside.append(following)
        basis.append(rest / following)


def _orthogonal(vector: Tensor, basis: list[Tensor]) -> Tensor:
    """Twice, because once leaves what rounding made of it (Parlett, "The Symmetric Eigenvalue Problem", 6.9)."""
    for _ in range(2):
        for other in basis:
            vector = vector - torch.dot(other, vector) * other
    return vector


def _ritz(diagonal: list[float], beside: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in rising order, and the last entries of their vectors."""
    if not np.isfinite(diagonal).all():
        return np.full(1, math.nan), np.zeros(1)
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors[-1]


def _product_of(surface: Surface, gradient: Direction) -> tuple[Callable[[Direction], Direction], bool]:
    """By differentiating twice if the model can, and else by gradients on both sides."""
    try:
        surface.product(gradient)
    except (RuntimeError, NotImplementedError) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        return lambda direction: _difference(surface, direction), False
    return surface.product, True


def _difference(surface: Surface, direction: Direction) -> Direction:
    """Central difference; its step balances rounding against the third derivative."""
    length = length_of(direction)
    if length == 0:
        return [torch.zeros_like(d) for d in direction]
    step = torch.finfo(direction[0].dtype).eps ** (1 / 3) * max(length_of(surface.origin), 1.0) / length
    surface.move((step, direction))
    above = surface.gradient()
    surface.move((-step, direction))
    below = surface.gradient()
    surface.move()
    return [(a - b) / (2 * step) for a, b in zip(above, below, strict=True)]


def _shaped(vector: Tensor, surface: Surface) -> Direction:
    parts = vector.split([p.numel() for p in surface.parameters])
    return [part.view(p.shape).to(p) for part, p in zip(parts, surface.parameters, strict=True)]
