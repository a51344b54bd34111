"""The statistics as torch operators, so that a compiled graph can call them without being broken in two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchdoctor.stats.activation import ACTIVATION_WIDTH, activation
from torchdoctor.stats.summary import WIDTH, summarize


def _home(tensors: Sequence[Tensor]) -> torch.device:
    return next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))


def _on(device: torch.device, found: Tensor) -> Tensor:
    """On the device the graph expects; what is only NaN is made there, since a captured graph cannot take a copy."""
    if found.device == device:
        return found
    return torch.full_like(found, math.nan, device=device)


@torch.library.custom_op("torchdoctor::summarize", mutates_args=(), schema="(Tensor[] tensors) -> Tensor")
def summarize_op(tensors: Sequence[Tensor]) -> Tensor:
    return _on(_home(tensors), summarize(tensors))


@summarize_op.register_fake
def _(tensors: Sequence[Tensor]) -> Tensor:
    return torch.empty(len(tensors), WIDTH, dtype=torch.float32, device=_home(tensors))


@torch.library.custom_op(
    "torchdoctor::activation", mutates_args=(), schema="(Tensor output, str? kind, int dim) -> Tensor"
)
def activation_op(output: Tensor, kind: str | None, dim: int) -> Tensor:
    return _on(output.device, activation(output, kind, dim))


@activation_op.register_fake
def _(output: Tensor, kind: str | None, dim: int) -> Tensor:
    return torch.empty(ACTIVATION_WIDTH, dtype=torch.float32, device=output.device)
