"""Statistics on any device by plain torch operations that never wait for it: where there is no Triton.

About twenty operations a tensor, so dear; norms and changes take three launches for the whole list.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchdoctor.signals import TINY
from torchdoctor.stats.support import flatten


def widest(tensor: Tensor) -> torch.dtype:
    """The dtype to sum in: float64 where the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def wider(a: Tensor, b: Tensor) -> torch.dtype:
    """The dtype to subtract in."""
    return torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)


def summarize(tensors: Sequence[Tensor]) -> Tensor:
    """(T, 8) float32, as reference.summarize defines it."""
    return torch.stack([_summarize_one(flatten(t.detach())) for t in tensors])


def _summarize_one(flat: Tensor) -> Tensor:
    wide = widest(flat)
    if not flat.numel():
        row = torch.full((8,), float("nan"), dtype=torch.float32, device=flat.device)
        row[7] = 0.0
        return row
    values = flat if flat.dtype is torch.float64 else flat.float()
    finite = torch.isfinite(values)
    count = finite.sum()
    clean = torch.where(finite, values, 0)
    magnitude = clean.abs()
    high = magnitude.amax()
    scale = torch.where(high > 0, high, 1)
    mean = clean.sum(dtype=wide) / count
    squares = (clean / scale).square_().sum(dtype=wide)
    deviations = torch.where(finite, (values - mean.to(values.dtype)) / scale, 0).square_().sum(dtype=wide)
    zeros = (values == 0).sum()
    small = (finite & (magnitude < TINY)).sum()
    row = (
        scale * torch.where(count > 0, squares, float("nan")).sqrt(),
        mean,
        scale * (deviations / count).sqrt(),
        torch.where(count > 0, high, float("nan")),
        magnitude.sum(dtype=wide) / count,
        zeros / flat.numel(),
        (small - zeros) / flat.numel(),
        flat.numel() - count,
    )
    return torch.stack([x.to(torch.float32) for x in row])


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """(T,) float32; NaN or Inf where an element is."""
    plain = [t.detach() for t in tensors]
    dtypes = {t.dtype for t in plain}
    if len(dtypes) == 1 and not dtypes & {torch.float16, torch.bfloat16}:
        return torch.stack(torch._foreach_norm(plain)).float()
    wide = torch.float64 if torch.float64 in dtypes else torch.float32
    return torch.stack(torch._foreach_norm(plain, 2, wide)).float()


def change_norms(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """(T,) float32: the norm of after - before for each pair of equal shapes."""
    if len({t.dtype for t in (*before, *after)}) == 1 and after[0].dtype in (torch.float32, torch.float64):
        return norms(torch._foreach_sub([t.detach() for t in after], [t.detach() for t in before]))
    pairs = zip(after, before, strict=True)
    return norms([a.detach().to(wider(a, b)) - b.detach().to(wider(a, b)) for a, b in pairs])
