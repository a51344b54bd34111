"""What every statistic means: plain float64 definitions, one tensor at a time, as slow as they are clear.

Tests hold the fast paths to these. All take a tensor that `support.unsupported` has nothing against.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchdoctor.signals import HISTOGRAM_BINS, TINY, histogram_edges

NAN = math.nan

SIGMOID_MARGIN = 0.01
"""A sigmoid's output is saturated within this of 0 or 1: 1 % of its range, where its slope is below 0.01."""
TANH_MARGIN = 0.02
"""The same for tanh, whose range is twice as wide; its slope there is below 0.04."""
SOFTMAX_LIMIT = 0.99
"""A softmax row is saturated when its largest probability is above this."""


def numbers(tensor: Tensor) -> Tensor:
    """The elements as float64, in the tensor's own shape; of complex ones the magnitudes."""
    dense = tensor.detach()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    if dense.is_complex():
        return dense.to(torch.complex128).abs().cpu()
    return dense.cpu().to(torch.float32).double() if dense.dtype.itemsize == 1 else dense.cpu().double()


def summarize(tensor: Tensor) -> list[float]:
    """One number for each of signals.STATISTICS.

    The first five are over the finite elements, and NaN where there is none. `std` divides by the number of
    elements, so it is 0 for a single one. `zeros` and `tiny` are shares of all elements, NaN for an empty tensor.
    """
    x = numbers(tensor).reshape(-1)
    finite = x[x.isfinite()]
    nonfinite = float(x.numel() - finite.numel())
    zeros = float((x == 0).sum()) / x.numel() if x.numel() else NAN
    tiny = float(((x != 0) & (x.abs() < TINY)).sum()) / x.numel() if x.numel() else NAN
    if not finite.numel():
        return [NAN, NAN, NAN, NAN, NAN, zeros, tiny, nonfinite]
    absmax = float(finite.abs().max())
    mean = float(finite.mean())
    std = scaled_norm(finite - mean) / math.sqrt(finite.numel())
    return [scaled_norm(finite), mean, std, absmax, float(finite.abs().mean()), zeros, tiny, nonfinite]


def scaled_norm(x: Tensor) -> float:
    """The Euclidean norm of float64 numbers, without overflow or underflow of their squares."""
    scale = float(x.abs().max()) if x.numel() else 0.0
    if scale == 0.0 or not math.isfinite(scale):
        return scale
    return scale * math.sqrt(float((x / scale).square().sum()))


def norm(tensor: Tensor) -> float:
    """The Euclidean norm over all elements: NaN or Inf if any of them is; 0 for an empty tensor."""
    x = numbers(tensor).reshape(-1)
    if x.isnan().any():
        return NAN
    return scaled_norm(x)


def change_norm(before: Tensor, after: Tensor) -> float:
    """The Euclidean norm of what changed."""
    return norm(numbers(after) - numbers(before))


def histogram(tensor: Tensor) -> list[float]:
    """Counts in the bins of signals.histogram_edges; NaN and Inf are in none."""
    x = numbers(tensor).reshape(-1)
    x = x[x.isfinite()]
    counts = [0.0] * HISTOGRAM_BINS
    for index, (low, high) in enumerate(histogram_edges()):
        if low == high:
            inside = x == 0
        elif high <= 0:
            inside = (x > low) & (x <= high) & (x != 0)
        else:
            inside = (x >= low) & (x < high) & (x != 0)
        counts[index] = float(inside.sum())
    return counts


def activation(output: Tensor, kind: str | None, dim: int = -1) -> list[float]:
    """mean, std, absmax, zeros, saturated, nonfinite of a module's output."""
    _, mean, std, absmax, _, zeros, _, nonfinite = summarize(output)
    return [mean, std, absmax, zeros, saturated(output, kind, dim), nonfinite]


def saturated(output: Tensor, kind: str | None, dim: int = -1) -> float:
    """Share of saturated outputs (of rows, for a softmax); NaN where the kind has no limits or nothing is there."""
    x = numbers(output)
    if kind in ("sigmoid", "hardsigmoid"):
        full = (x < SIGMOID_MARGIN) | (x > 1 - SIGMOID_MARGIN)
    elif kind in ("tanh", "hardtanh"):
        full = x.abs() > 1 - TANH_MARGIN
    elif kind == "softmax" and x.numel():
        full = x.amax(dim) > SOFTMAX_LIMIT
    else:
        return NAN
    return float(full.double().mean()) if full.numel() else NAN


def alive_units(output: Tensor, unit_dim: int) -> Tensor:
    """True for each unit (index along `unit_dim`) with any output other than zero."""
    x = numbers(output).movedim(unit_dim, 0)
    return torch.tensor([bool((unit != 0).any()) for unit in x], dtype=torch.bool)


def batch(tensor: Tensor) -> list[float]:
    """mean, std, min, max over the finite elements (NaN where there is none), and the count of the others."""
    x = numbers(tensor).reshape(-1)
    finite = x[x.isfinite()]
    nonfinite = float(x.numel() - finite.numel())
    if not finite.numel():
        return [NAN, NAN, NAN, NAN, nonfinite]
    mean = float(finite.mean())
    std = scaled_norm(finite - mean) / math.sqrt(finite.numel())
    return [mean, std, float(finite.min()), float(finite.max()), nonfinite]


def unit_spread(tensor: Tensor) -> float:
    """The largest difference between two units (rows of dimension 0) in any place, over the largest magnitude.

    0 if all units are equal; NaN for vectors, for a single unit, and where all is zero or anything non-finite.
    """
    x = numbers(tensor)
    if x.dim() < 2 or x.shape[0] < 2 or not x.numel():
        return NAN
    x = x.flatten(1)
    scale = x.abs().max()
    return float((x.amax(0) - x.amin(0)).max() / scale) if scale > 0 else NAN
