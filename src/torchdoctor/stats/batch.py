"""What goes into a model: a batch as a whole, its features, the identity of its samples; and the spread of units."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchdoctor.interruptions import let_through
from torchdoctor.stats.rows import nothing
from torchdoctor.stats.summary import summarize
from torchdoctor.stats.support import Quiet, blocked, elements, numbers, unsupported

MOST_FEATURES = 256
"""As facts.InputsFact keeps; of more, every n-th is looked at."""
BATCH_WIDTH = 5


def batch(tensor: Tensor) -> Tensor:
    """(5,) float32: mean, std, min, max over the finite elements, and the count of the others."""
    if unsupported(tensor) is not None:
        return nothing((BATCH_WIDTH,))
    found = summarize([tensor])
    with Quiet():
        row = found[0]
        try:
            part = elements(tensor)
            low, high = _bounds(part.values)
            if part.implied:
                low, high = low.nan_to_num(0.0).clamp(max=0.0), high.nan_to_num(0.0).clamp(min=0.0)
        except Exception as error:
            let_through(error)
            return nothing((BATCH_WIDTH,))
        return torch.stack([row[1], row[2], low.to(row.device), high.to(row.device), row[7]])


def _bounds(values: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest finite value as float32; NaN if there is none."""
    if not values.numel():
        nan = torch.full((), math.nan, dtype=torch.float32, device=values.device)
        return nan, nan
    if values.is_cpu:
        low, high = torch.aminmax(values)
        if math.isfinite(low.item()) and math.isfinite(high.item()):
            return low.float(), high.float()
    finite = torch.isfinite(values)
    some = finite.any()
    low = torch.where(finite, values, math.inf).amin()
    high = torch.where(finite, values, -math.inf).amax()
    return torch.where(some, low, math.nan).float(), torch.where(some, high, math.nan).float()


def features(tensor: Tensor, dim: int) -> Tensor:
    """(4, F) float32: mean, std, smallest and largest finite value of each feature, the indices along `dim`.

    Of more than 256 features every n-th is taken, so that at most 256 remain. (4, 0) where it cannot be done.
    """
    empty = nothing((4, 0))
    if blocked() or unsupported(tensor) is not None:
        return empty
    with Quiet():
        try:
            plain = tensor.detach()
            plain = plain.to_dense() if plain.layout != torch.strided else plain
            step = -(-plain.size(dim) // MOST_FEATURES)
            if step > 1:
                plain = plain.movedim(dim, 0)[::step].movedim(0, dim)
            return _features(numbers(plain), dim % plain.dim())
        except Exception as error:
            let_through(error)
            return empty


def _features(plain: Tensor, dim: int) -> Tensor:
    others = [d for d in range(plain.dim()) if d != dim]
    count = math.prod(plain.size(d) for d in others)
    if not count:
        return torch.full((4, plain.size(dim)), math.nan, dtype=torch.float32, device=plain.device)
    if not others:
        plain, others = plain[None], [0]
    mean = plain.mean(others, keepdim=True)
    if plain.is_cpu and mean.isfinite().all():
        std = torch.linalg.vector_norm(plain - mean, dim=others) / math.sqrt(count)
        found = mean.flatten(), std, plain.amin(others), plain.amax(others)
        return torch.stack(found).float()
    finite = torch.isfinite(plain)
    number = finite.sum(others, keepdim=True)
    mean = torch.where(finite, plain, 0).sum(others, keepdim=True) / number
    std = (torch.where(finite, plain - mean, 0).square().sum(others) / number.flatten()).sqrt()
    low = torch.where(finite, plain, math.inf).amin(others)
    high = torch.where(finite, plain, -math.inf).amax(others)
    rows = [mean.flatten(), std, low, high]
    return torch.stack([torch.where(number.flatten() > 0, row, math.nan) for row in rows]).float()


def unit_spread(tensor: Tensor) -> Tensor:
    """0-dim float32: the largest difference between output units (rows of dimension 0) over the largest magnitude.

    0 if all units are equal; NaN for vectors, for a single unit, where all is zero or anything is non-finite.
    """
    if unsupported(tensor) is not None:
        return nothing(())
    with Quiet():
        try:
            if tensor.dim() < 2 or tensor.size(0) < 2 or not tensor.numel():
                return torch.full((), math.nan, dtype=torch.float32, device=tensor.device)
            plain = numbers(tensor)
            high, low = plain.amax(0), plain.amin(0)
            scale = torch.maximum(high.amax(), -low.amin())
            return ((high - low).amax() / scale).float()
        except Exception as error:
            let_through(error)
            return nothing(())
