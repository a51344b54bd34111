"""Random directions in the space of the weights, scaled so that the scale of a layer does not matter."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12


def filter_noise(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Normal noise whose every row (a filter, a unit) has the norm of the weight's row; a vector counts as one row.
    It is drawn on the CPU, so that it is the same on every device."""
    rows = weight.detach().flatten(1) if weight.dim() > 1 else weight.detach().reshape(1, -1)
    noise = torch.randn(rows.shape, generator=generator, device="cpu").to(weight.device, weight.dtype)
    return (noise * (rows.norm(dim=1) / noise.norm(dim=1).clamp_min(TINY)).unsqueeze(1)).view_as(weight)
