"""Heads whose scores are cosines: both of their factors have length one, and a scale is chosen (ArcFace, CosFace)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchdoctor.checks.bench import Bench

PRODUCTS = ("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "einsum")
UNIT = 1e-2
"""By which lengths may differ from one: half precision, and the small number that is added before dividing."""


def gives_cosines(bench: Bench, batch: Any, width: int) -> bool:
    """On the way to its loss, cosines with as many directions are taken as there are classes."""
    with _Products(width) as products, torch.compiler.set_stance("force_eager"):
        bench.subject.loss(batch)
    return products.found


class _Products(TorchFunctionMode):
    def __init__(self, width: int) -> None:
        super().__init__()
        self._width, self.found = width, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(made, Tensor) and made.dim() > 1 and made.shape[-1] == self._width:
            factors = [arg for arg in args if isinstance(arg, Tensor)]
            of_units = name in PRODUCTS and len(factors) >= 2 and all(map(_is_of_units, factors[:2]))
            self.found |= name == "cosine_similarity" or of_units
        return made


def _is_of_units(factor: Tensor) -> bool:
    """Along its last dimension, or along its first as the second factor of a product."""
    if factor.dim() < 2 or not factor.is_floating_point() or not factor.numel():
        return False
    values = factor.detach().float()
    return any(bool(((values.norm(dim=dim) - 1).abs() <= UNIT).all()) for dim in (-1, 0))
