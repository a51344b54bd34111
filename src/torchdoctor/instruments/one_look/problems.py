"""A tensor of a batch as it is seen, and what may be wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdoctor.findings import Severity
from torchdoctor.report.text import count as counted
from torchdoctor.stats import batch as batch_statistics


@dataclass(frozen=True)
class Problem:
    severity: Severity
    where: str
    text: str
    fix: str = ""

    @property
    def title(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Seen:
    """Statistics are over the finite elements, NaN where there are none."""

    name: str
    role: str
    """"input" or "target\""""
    shape: tuple[int, ...]
    dtype: str
    device: str
    low: float
    high: float
    mean: float
    std: float
    nonfinite: int

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def size(self) -> float:
        """root mean square"""
        return math.hypot(self.mean, self.std)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 4 and min(self.shape[2:]) >= 4

    @property
    def is_mask(self) -> bool:
        return "mask" in self.name.lower()


@torch.no_grad()
def see(name: str, tensor: Tensor, role: str) -> Seen:
    mean, std, low, high, nonfinite = batch_statistics(tensor).tolist()
    dtype = str(tensor.dtype).removeprefix("torch.")
    bad = 0 if math.isnan(nonfinite) else int(nonfinite)
    name = f"batch{name}" if not name or name.startswith("[") else name
    return Seen(name, role, tuple(tensor.shape), dtype, str(tensor.device), low, high, mean, std, bad)


def nonfinite_problem(seen: Seen, tensor: Tensor) -> Problem:
    bad = ~torch.isfinite(tensor.detach())
    rows = bad.flatten(1).any(1) if bad.dim() > 1 else bad.reshape(-1)
    first = torch.nonzero(bad)[0].tolist() if bad.dim() else []
    kind = "NaN" if bool(torch.isnan(tensor).any()) else "Inf"
    count = "1 element is" if seen.nonfinite == 1 else f"{seen.nonfinite} elements are"
    affected = f"{int(rows.sum())} of {counted(len(rows), 'sample')}"
    return Problem(
        Severity.ERROR,
        seen.name,
        f"{count} NaN or Inf, in {affected}; the first ({kind}) at {first}",
        "One of them makes the loss NaN, and with it every weight. Drop these samples or fill the gaps.",
    )
