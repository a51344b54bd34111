"""The statistics as torch operators, so that a compiled graph can call them without being broken in two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchdoctor.stats.activation import ACTIVATION_WIDTH, activation
from torchdoctor.stats.summary import WIDTH, summarize


@torch.library.custom_op("torchdoctor::summarize", mutates_args=())
def summarize_op(tensors: Sequence[Tensor]) -> Tensor:
    found = summarize(tensors)
    return found.to(tensors[0].device, non_blocking=True) if len(tensors) else found


@summarize_op.register_fake
def _(tensors: Sequence[Tensor]) -> Tensor:
    device = tensors[0].device if len(tensors) else torch.device("cpu")
    return torch.empty(len(tensors), WIDTH, dtype=torch.float32, device=device)


@torch.library.custom_op("torchdoctor::activation", mutates_args=())
def activation_op(output: Tensor, kind: str | None, dim: int) -> Tensor:
    return activation(output, kind, dim).to(output.device, non_blocking=True)


@activation_op.register_fake
def _(output: Tensor, kind: str | None, dim: int) -> Tensor:
    return torch.empty(ACTIVATION_WIDTH, dtype=torch.float32, device=output.device)
