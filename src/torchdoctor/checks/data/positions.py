"""Targets of models that answer at many positions of a sample (tokens, pixels): which class is the most frequent, and
whether that class is the padding at the ends of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed
from torchdoctor.checks.data.balance import LEAST_LABELS
from torchdoctor.checks.model.influence import sample_counts
from torchdoctor.checks.model.looks import Looks
from torchdoctor.findings import Fix, Severity
from torchdoctor.probes.loss_calls import LossCall

PADDED = 0.2
"""Share of the targets: padding that counts harms little below it."""
AT_END = 0.98
"""Share of the positions of padding that lie at the ends of their sequences; the others are tokens of that number."""
LENGTHS = 3
"""Different numbers of trailing positions: a last token that is always the same has one."""
FREE = ("none",)
"""Reductions after which a script may still mask positions by itself."""


@dataclass(frozen=True)
class Positions:
    """Targets that the loss counts, in the batches looked at."""

    count: int
    frequent: int
    """the most frequent class"""
    share: float
    at_end: float
    """share of that class's positions that follow the last other class of their sequence"""
    lengths: int
    """different numbers of such positions in a sequence"""

    def __str__(self) -> str:
        return f"{self.count} targets looked at, {self.share:.0%} of them class {self.frequent}"

    @property
    def is_padding(self) -> bool:
        return self.share >= PADDED and self.at_end >= AT_END and self.lengths >= LENGTHS


def positions_of(bench: Bench, looks: Looks) -> Positions | None:
    """None where targets are no class indices, or the loss call leaves open which of them count."""
    rows: list[NDArray[np.int64]] = []
    for look in looks.train:
        call = next((c for c in look.calls if c.indices), None)
        if call is None or call.options.get("weight") is not None or call.options.get("reduction") in FREE:
            return None
        rows += _sequences(call, sample_counts(bench, look.batch))
    values = np.concatenate([row[row != _ignored(call)] for row in rows]) if rows else np.zeros(0, np.int64)
    if len(values) < LEAST_LABELS:
        return None
    kinds, counts = np.unique(values, return_counts=True)
    frequent, most = int(kinds[counts.argmax()]), int(counts.max())
    ends = [_trailing(row[row != _ignored(call)], frequent) for row in rows]
    return Positions(len(values), frequent, most / len(values), sum(ends) / most, len(set(ends)))


def _sequences(call: LossCall, counts: list[int]) -> Iterator[NDArray[np.int64]]:
    """Yield the targets sample by sample, where their number tells how they were flattened; else as one row."""
    assert call.target is not None
    values = call.target.detach().cpu().long()
    count = next((n for n in counts if n and values.numel() % n == 0), 1)
    yield from values.reshape(count, -1).numpy()


def _ignored(call: LossCall) -> int:
    return int(call.options.get("ignore_index", -100))


def _trailing(row: NDArray[np.int64], value: int) -> int:
    others = np.flatnonzero(row != value)
    return len(row) - (int(others[-1]) + 1 if len(others) else 0)


def judge_padding(positions: Positions | None) -> Outcome | None:
    if positions is None or not positions.is_padding:
        return None
    padding = positions.frequent
    return failed(
        f"{positions.share:.0%} of the {positions.count} targets that the loss counts are class {padding}, at the ends "
        "of sequences: padding counts as something to predict, and makes the loss look good",
        None,
        Fix(
            "Tell the loss which target is padding.",
            f"loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index={padding})",
        ),
        severity=Severity.WARNING,
        share=positions.share,
        proven=False,
    )
