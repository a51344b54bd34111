"""How well single input features tell the target, summed over looks at training batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import LeakageFact
from torchdoctor.probes.context import Context

FEATURES, CLASSES, SAMPLES = 1024, 64, 256
ELEMENTS = 1 << 15
"""Of a wide batch so many elements are summed: two million multiplications, about a millisecond."""
TOKENS, CELLS = 128, 1 << 16
"""Tokens are counted by position and class where so many ids, and so many counts in all, will do."""
SEEN, SHARE = 20, 0.05
"""Tokens seen less often at a position, and classes of a smaller share, leave too little in their cells to compare."""
LOOKS = 40
TOLD = 16
WRITTEN = (6, 10, 16, 24, 40)
"""Looks after which what is known so far is written."""


class LeakageProbe:
    """Keeps sums of each feature by class (or with the target) from which the share of explained variance follows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks = 0
        self._sums: NDArray[np.float64] | None = None
        self._tokens: NDArray[np.float64] | None = None
        self._seen: set[bytes] = set()
        self._classes = False
        self._shape: list[int] = []

    @contained("leakage: look")
    def look(self, inputs: Tensor | None, target: Tensor | None) -> None:
        if inputs is None or target is None or self._looks >= LOOKS or inputs.dim() < 2:
            return
        if stats.unsupported(inputs) or stats.unsupported(target) or target.shape[0] != inputs.shape[0]:
            return
        width = max(1, inputs[:1].numel())
        count = min(SAMPLES, inputs.shape[0], max(16, ELEMENTS // width))
        rows, labels = inputs.detach()[:count].reshape(count, -1), target.detach()[:count]
        if rows.shape[1] > FEATURES or rows.shape[1] < 2 or labels.numel() != rows.shape[0]:
            return
        labels = labels.reshape(-1)
        classes = not labels.is_floating_point()
        sums = _class_sums(rows.double(), labels) if classes else _target_sums(rows.double(), labels.double())
        shape, step = list(inputs.shape[1:]), self._context.step
        self._context.read(sums, lambda values: self._add(values, classes, shape, step))
        if classes and not inputs.is_floating_point() and rows.shape[1] * TOKENS <= CELLS // 2:
            self._context.read(torch.cat([rows, labels[:, None]], 1), self._count_tokens)

    def _count_tokens(self, rows_NF1: NDArray[Any]) -> None:
        """Add what stands where in samples of which class: (F, V, C). A sample that comes again tells nothing new."""
        new = [i for i, row in enumerate(rows_NF1) if row.tobytes() not in self._seen]
        self._seen.update(rows_NF1[i].tobytes() for i in new)
        rows_NF, labels_N = rows_NF1[new, :-1].astype(np.int64), rows_NF1[new, -1].astype(np.int64)
        width = rows_NF.shape[1]
        if self._tokens is None:
            self._tokens = np.zeros((width, TOKENS, CELLS // (width * TOKENS)))
        known_N = (labels_N >= 0) & (labels_N < self._tokens.shape[2])
        if width != len(self._tokens):
            return
        for position, counts_VC in enumerate(self._tokens):
            tokens_N = rows_NF[:, position]
            fits_N = known_N & (tokens_N >= 0) & (tokens_N < TOKENS)
            np.add.at(counts_VC, (tokens_N[fits_N], labels_N[fits_N]), 1)

    def _add(self, sums: NDArray[Any], classes: bool, shape: list[int], step: int) -> None:
        if self._sums is not None and (sums.shape != self._sums.shape or shape != self._shape):
            return
        if not np.isfinite(sums).all():
            return
        self._classes, self._shape = classes, shape
        self._sums = sums.astype(np.float64) if self._sums is None else self._sums + sums
        self._looks += 1
        if self._looks in WRITTEN:
            self.write(step)

    @contained("leakage: write")
    def write(self, step: int) -> None:
        if self._sums is None:
            return
        samples, told_F = class_share(self._sums) if self._classes else target_share(self._sums)
        order = np.argsort(told_F)[::-1]
        fact = LeakageFact(
            task="classes" if self._classes else "regression",
            samples=int(samples),
            shape=self._shape,
            features=order[:TOLD].tolist(),
            told=[float(v) for v in told_F[order[:TOLD]]],
            median=float(np.median(told_F)),
            beside=told_beside(self._tokens, int(order[0])) if self._tokens is not None else None,
        )
        self._context.record.fact(fact, step)


def _class_sums(rows_NF: Tensor, labels_N: Tensor) -> Tensor:
    """(3, C, F): count, sum and sum of squares by class; labels outside 0..C-1 are left out."""
    known = (labels_N >= 0) & (labels_N < CLASSES)
    member_CN = (labels_N[None] == torch.arange(CLASSES, device=labels_N.device)[:, None]) & known[None]
    member_CN = member_CN.double()
    count_C = member_CN.sum(1, keepdim=True).expand(-1, rows_NF.shape[1])
    return torch.stack([count_C, member_CN @ rows_NF, member_CN @ rows_NF.square()])


def _target_sums(rows_NF: Tensor, target_N: Tensor) -> Tensor:
    """(6, F): n, x, y, xx, xy, yy."""
    count = torch.full_like(rows_NF[0], float(rows_NF.shape[0]))
    target = target_N[:, None].expand_as(rows_NF)
    products = (rows_NF, target, rows_NF.square(), rows_NF * target, target.square())
    return torch.stack([count, *(p.sum(0) for p in products)])


def told_beside(counts_FVC: NDArray[np.float64], best: int) -> float | None:
    """Pooled chi-squared of token against class over all positions but one, in its own standard deviations."""
    total, degrees = 0.0, 0
    for position, counts_VC in enumerate(counts_FVC):
        often_C = counts_VC.sum(0) >= SHARE * counts_VC.sum()
        table = counts_VC[:, often_C]
        table = table[table.sum(1) >= SEEN]
        if position == best or min(table.shape, default=0) < 2:
            continue
        expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
        total += float(((table - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
        degrees += (table.shape[0] - 1) * (table.shape[1] - 1)
    return (total - degrees) / (2 * degrees) ** 0.5 if degrees else None


def class_share(sums: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Share of each feature's variance that lies between classes."""
    count_CF, sum_CF, square_CF = sums
    count_F, total_F = count_CF.sum(0), sum_CF.sum(0)
    variance_F = square_CF.sum(0) - total_F**2 / np.maximum(count_F, 1)
    between_F = (sum_CF**2 / np.maximum(count_CF, 1)).sum(0) - total_F**2 / np.maximum(count_F, 1)
    small = variance_F <= 1e-9 * np.maximum(square_CF.sum(0), 1e-300)
    return float(count_F.max()), np.where(small, 0.0, np.clip(between_F / np.maximum(variance_F, 1e-300), 0.0, 1.0))


def target_share(sums: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Squared correlation of each feature with the target."""
    n, x, y, xx, xy, yy = sums
    variance_x, variance_y = xx - x * x / n, yy - y * y / n
    small = (variance_x <= 1e-9 * np.maximum(xx, 1e-300)) | (variance_y <= 1e-9 * np.maximum(yy, 1e-300))
    share = (xy - x * y / n) ** 2 / np.maximum(variance_x * variance_y, 1e-300)
    return float(n.max()), np.where(small, 0.0, np.clip(share, 0.0, 1.0))
