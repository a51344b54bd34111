"""One row of numbers for each tensor of a list that may hold anything, on any devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchdoctor.interruptions import let_through
from torchdoctor.stats.support import Elements, Quiet, elements, unsupported


def by_device(
    tensors: Sequence[Tensor], width: tuple[int, ...], measure: Callable[[list[Tensor], list[Elements]], Tensor]
) -> Tensor:
    """Measure what can be, device by device, and leave the rest NaN."""
    groups: dict[torch.device, list[tuple[int, Elements]]] = {}
    for i, tensor in enumerate(tensors):
        if unsupported(tensor) is not None:
            continue
        try:
            part = elements(tensor)
        except Exception as error:
            let_through(error)
            continue
        groups.setdefault(part.values.device, []).append((i, part))
    rows = list(nothing((len(tensors), *width)).unbind())
    for members in groups.values():
        for i, row in _measure_each(members, measure):
            rows[i] = row
    home = next((d for d in groups if d.type != "cpu"), torch.device("cpu"))
    return torch.stack([row.to(home, non_blocking=True) for row in rows])


def _measure_each(
    members: list[tuple[int, Elements]], measure: Callable[[list[Tensor], list[Elements]], Tensor]
) -> list[tuple[int, Tensor]]:
    """All at once; if that fails, one by one, so that one odd tensor does not cost the others their row."""
    parts = [part for _, part in members]
    try:
        return list(zip([i for i, _ in members], measure([p.values for p in parts], parts).unbind(), strict=True))
    except Exception as error:
        let_through(error)
        return [] if len(members) == 1 else [r for member in members for r in _measure_each([member], measure)]


def nothing(shape: tuple[int, ...]) -> Tensor:
    """All NaN, on the CPU."""
    with torch._C._DisableFuncTorch(), Quiet():
        return torch.full(shape, math.nan, dtype=torch.float32, device="cpu")


def none_of(dtype: torch.dtype) -> Tensor:
    """No elements, on the CPU."""
    with torch._C._DisableFuncTorch(), Quiet():
        return torch.zeros(0, dtype=dtype, device="cpu")
