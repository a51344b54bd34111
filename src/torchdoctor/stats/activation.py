"""A module's output: its statistics, its saturation, and which of its units are alive."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torchdoctor.stats.reference import SIGMOID_MARGIN, SOFTMAX_LIMIT, TANH_MARGIN
from torchdoctor.stats.rows import none_of, nothing
from torchdoctor.stats.summary import summarize
from torchdoctor.stats.support import Quiet, numbers, unsupported

ACTIVATION_WIDTH = 6

_SIGMOID, _TANH = (SIGMOID_MARGIN, 1 - SIGMOID_MARGIN), (TANH_MARGIN - 1, 1 - TANH_MARGIN)
_LIMITS: dict[str | None, tuple[float, float]] = {
    "sigmoid": _SIGMOID,
    "hardsigmoid": _SIGMOID,
    "tanh": _TANH,
    "hardtanh": _TANH,
    "softmax": (-math.inf, SOFTMAX_LIMIT),
}


def activation(output: Tensor, kind: str | None, dim: int = -1) -> Tensor:
    """(6,) float32: mean, std, absmax, zeros, saturated, nonfinite, as reference.activation defines them.

    Saturated is the share of a sigmoid's outputs within 0.01 of 0 or 1, of a tanh's within 0.02 of -1 or 1, of a
    softmax's rows (along `dim`) whose largest probability is above 0.99; NaN for any other kind.
    """
    if torch.compiler.is_compiling():
        return torch.ops.torchdoctor.activation(output.detach(), kind, dim)
    if unsupported(output) is not None:
        return nothing((ACTIVATION_WIDTH,))
    found = summarize([output])
    with Quiet():
        _, mean, std, absmax, _, zeros, _, nonfinite = found[0].unbind()
        full = _saturated(output, kind, dim)
        return torch.stack([mean, std, absmax, zeros, full.to(mean.device), nonfinite])


def _saturated(output: Tensor, kind: str | None, dim: int) -> Tensor:
    limits = _LIMITS.get(kind)
    try:
        if limits is not None and output.numel():
            plain = numbers(output)
            if kind == "softmax":
                plain = plain.amax(dim)
            return _share_outside(plain, *limits)
    except (RuntimeError, IndexError):
        pass
    return torch.full((), math.nan, dtype=torch.float32, device=output.device)


def _share_outside(plain: Tensor, low: float, high: float) -> Tensor:
    if plain.is_cpu:  # numpy compares and counts ten times faster than torch does
        values = plain.numpy()
        with np.errstate(all="ignore"):
            count = np.count_nonzero(values < low) + np.count_nonzero(values > high)
        return torch.tensor(count / plain.numel(), dtype=torch.float32, device="cpu")
    return ((plain < low) | (plain > high)).sum().float() / plain.numel()


def alive_units(output: Tensor, unit_dim: int) -> Tensor:
    """(U,) bool: whether the unit had any output other than zero; empty where the output is unsupported.

    A NaN is not zero. Largest and smallest value tell it five to twenty times faster than comparing every element.
    """
    if unsupported(output) is not None:
        return none_of(torch.bool)
    with Quiet():
        try:
            plain = output.detach()
            plain = plain.to_dense() if plain.layout != torch.strided else plain
            plain = plain.abs() if plain.is_complex() else plain
            if not plain.dim():
                return none_of(torch.bool)
            plain = plain.movedim(unit_dim, 0).unsqueeze(-1)
            if not plain.numel():
                return torch.zeros(plain.shape[0], dtype=torch.bool, device=plain.device)
            others = list(range(1, plain.dim()))
            alive = plain.amax(others) != 0
            if not plain.is_cpu or not alive.all():
                alive |= plain.amin(others) != 0
            return alive
        except (RuntimeError, IndexError):
            return none_of(torch.bool)
