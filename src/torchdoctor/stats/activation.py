"""A module's output: its statistics, its saturation, and which of its units are alive."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchdoctor.stats.reference import SIGMOID_MARGIN, SOFTMAX_LIMIT, TANH_MARGIN
from torchdoctor.stats.rows import nothing
from torchdoctor.stats.summary import summarize
from torchdoctor.stats.support import Quiet, unsupported

ACTIVATION_WIDTH = 6


def activation(output: Tensor, kind: str | None, dim: int = -1) -> Tensor:
    """(6,) float32: mean, std, absmax, zeros, saturated, nonfinite, as reference.activation defines them.

    Saturated is the share of a sigmoid's outputs within 0.01 of 0 or 1, of a tanh's within 0.02 of -1 or 1, of a
    softmax's rows (along `dim`) whose largest probability is above 0.99; NaN for any other kind.
    """
    if torch.compiler.is_compiling():
        return torch.ops.torchdoctor.activation(output.detach(), kind, dim)
    if unsupported(output) is not None:
        return nothing((ACTIVATION_WIDTH,))
    _, mean, std, absmax, _, zeros, _, nonfinite = summarize([output])[0].unbind()
    with Quiet():
        full = _saturated(output.detach(), kind, dim)
        return torch.stack([mean, std, absmax, zeros, full.to(mean.device, torch.float32), nonfinite])


def _saturated(output: Tensor, kind: str | None, dim: int) -> Tensor:
    try:
        if kind in ("sigmoid", "hardsigmoid") and output.numel():
            return ((output - 0.5).abs_() > 0.5 - SIGMOID_MARGIN).mean(dtype=torch.float32)
        if kind in ("tanh", "hardtanh") and output.numel():
            return (output.abs() > 1 - TANH_MARGIN).mean(dtype=torch.float32)
        if kind == "softmax" and output.dim() and output.numel():
            return (output.amax(dim) > SOFTMAX_LIMIT).mean(dtype=torch.float32)
    except (RuntimeError, IndexError):
        pass
    return torch.full((), math.nan, device=output.device)


def alive_units(output: Tensor, unit_dim: int) -> Tensor:
    """(U,) bool: whether the unit had any output other than zero; empty where the output is unsupported.

    A NaN is not zero. Largest and smallest value tell it five to twenty times faster than comparing every element.
    """
    if unsupported(output) is not None:
        return _no_units()
    with Quiet():
        try:
            plain = output.detach()
            plain = plain.to_dense() if plain.layout != torch.strided else plain
            plain = plain.abs() if plain.is_complex() else plain
            plain = plain.movedim(unit_dim, 0)
            if not plain.numel():
                return torch.zeros(plain.shape[0], dtype=torch.bool, device=plain.device)
            others = list(range(1, plain.dim()))
            if not others:
                return plain != 0
            alive = plain.amax(others) != 0
            if not plain.is_cpu or not alive.all():
                alive |= plain.amin(others) != 0
            return alive
        except (RuntimeError, IndexError):
            return _no_units()


def _no_units() -> Tensor:
    return torch.zeros(0, dtype=torch.bool, device="cpu")
