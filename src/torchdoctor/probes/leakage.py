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
TOKENS, CELLS = 512, 1 << 18
"""Tokens are counted by position and class, ids modulo a number (what comes together so only tells less), where so many
counts will do: eight classes at 64 positions. Chosen: two megabytes, and 3 ms a look at the widest."""
SEEN, SHARE = 20, 0.05
"""Tokens seen less often at a position, and classes of a smaller share, leave less than one in a cell: chi-squared is
then not what its name says."""
KNOWN = 5
"""Samples of a token from which on it can tell a class; rarer ones tell theirs by chance."""
LEAK = 0.9
"""A position that tells so much is one of those that may leak, not of the others (see rules/data/label_leakage.py)."""
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
        self._present: NDArray[np.float64] | None = None
        self._seen: set[int] = set()
        self._tries = 0
        self._classes = False
        self._shape: list[int] = []

    @contained("leakage: look")
    def look(self, inputs: Tensor | None, target: Tensor | None) -> None:
        if inputs is None or target is None or self._looks >= LOOKS or inputs.dim() < 2 or self._tries >= 2 * LOOKS:
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
        self._tries += 1
        shape, step = list(inputs.shape[1:]), self._context.step
        self._context.read(sums, lambda values: self._add(values, classes, shape, step))
        if classes and not inputs.is_floating_point() and rows.shape[1] * TOKENS <= CELLS // 2:
            self._context.read(torch.cat([rows, labels[:, None]], 1), self._count_tokens)

    def _count_tokens(self, rows_NF1: NDArray[Any]) -> None:
        """Add what stands where in samples of which class: (F, V, C). A sample that comes again tells nothing new."""
        width = rows_NF1.shape[1] - 1
        if self._tokens is None:
            self._tokens = np.zeros((width, TOKENS, CELLS // (width * TOKENS)))
            self._present = np.zeros(self._tokens.shape[1:])
        _, _, classes = self._tokens.shape
        if width != len(self._tokens) or self._present is None:
            return
        marks = [hash(row.tobytes()) for row in rows_NF1]
        labels_N = rows_NF1[:, -1]
        new_N = np.array([m not in self._seen for m in marks]) & (labels_N >= 0) & (labels_N < classes)
        self._seen.update(marks)
        rows_NF = rows_NF1[new_N, :-1].astype(np.int64) % TOKENS
        cell_NF = (np.arange(width) * TOKENS + rows_NF) * classes + labels_N[new_N, None].astype(np.int64)
        self._tokens += np.bincount(cell_NF.ravel(), minlength=self._tokens.size).reshape(self._tokens.shape)
        holds_NV = np.zeros((len(rows_NF), TOKENS))
        np.put_along_axis(holds_NV, rows_NF, 1.0, axis=1)
        self._present += holds_NV.T @ np.eye(classes)[labels_N[new_N].astype(np.int64)]

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
        if self._tokens is not None and len(self._tokens) == len(told_F):
            share_F = token_share(self._tokens)
            told_F = np.where(share_F >= LEAK, np.maximum(told_F, share_F), told_F)  # by chance it is a tenth
        order = np.argsort(told_F)[::-1]
        fact = LeakageFact(
            task="classes" if self._classes else "regression",
            samples=int(samples),
            shape=self._shape,
            features=order[:TOLD].tolist(),
            told=[float(v) for v in told_F[order[:TOLD]]],
            median=float(np.median(told_F)),
            beside=self._told_beside(told_F >= LEAK),
        )
        self._context.record.fact(fact, step)

    def _told_beside(self, leaks_F: NDArray[np.bool_]) -> float | None:
        if self._tokens is None or self._present is None or len(leaks_F) != len(self._tokens):
            return None
        return told_beside(self._present, self._tokens[leaks_F].sum((0, 2)) > 0)


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


def token_share(counts_FVC: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much of the way from guessing to certainty the token at each position tells the class."""
    counts_FV, total_F = counts_FVC.sum(2), counts_FVC.sum((1, 2))
    guess_F = counts_FVC.sum(1).max(1)
    right_F = np.where(counts_FV >= KNOWN, counts_FVC.max(2), 0.0).sum(1)
    several_F = (counts_FV >= KNOWN).sum(1) > 1
    return np.where(several_F, np.clip((right_F - guess_F) / np.maximum(total_F - guess_F, 1.0), 0.0, 1.0), 0.0)


def told_beside(present_VC: NDArray[np.float64], leaking_V: NDArray[np.bool_]) -> float | None:
    """Chi-squared of class against whether a sample holds a token, over all tokens, in its own standard deviations.

    Tokens that stand at a leaking position are left out. In a task of remembering it is one symbol among its like, and
    the others may avoid or repeat it; then nothing is left to compare.
    """
    often_C = present_VC.sum(0) >= SHARE * present_VC.sum()
    table = present_VC[:, often_C]
    table = table[(table.sum(1) >= SEEN) & ~leaking_V]
    if min(table.shape, default=0) < 2:
        return None
    share_C = present_VC[:, often_C].sum(0) / present_VC[:, often_C].sum()
    expected = table.sum(1, keepdims=True) * share_C
    degrees = len(table) * (len(share_C) - 1)
    return float(((table - expected) ** 2 / expected).sum() - degrees) / (2 * degrees) ** 0.5


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
