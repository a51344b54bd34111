"""Rows that stand for one look or for many: mean, least and greatest, merged two by two.

A row of level k stands for 2**k looks. Rows are always merged in pairs of one level, aligned to the first look, so
the result does not depend on the portions in which the looks came: live and read back it is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one level. Never written to once made, so views of it can be handed out.

    A block of looks (level 0) has neither low nor high. Columns may be fewer than the signal's: the missing ones were
    not known yet, and count as not measured.
    """

    steps: Ints
    """(n,) the last step of each row"""
    mean: Floats
    """(n, columns)"""
    low: Floats | None = None
    high: Floats | None = None
    counts: Floats | None = None
    """(n, columns) looks measured; None: all of the level's where the mean is a number, else none"""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def width(self) -> int:
        return self.mean.shape[1]

    @property
    def least(self) -> Floats:
        return self.mean if self.low is None else self.low

    @property
    def greatest(self) -> Floats:
        return self.mean if self.high is None else self.high

    @property
    def nbytes(self) -> int:
        arrays = (self.steps, self.mean, self.low, self.high, self.counts)
        return sum(a.nbytes for a in arrays if a is not None)

    def rows(self, at: slice) -> Block:
        cut = [None if a is None else a[at] for a in (self.low, self.high, self.counts)]
        return Block(self.steps[at], self.mean[at], *cut)

    def last_row(self) -> Block:
        """The last row alone, without keeping the others in memory."""
        copies = [None if a is None else a[-1:].copy() for a in (self.low, self.high, self.counts)]
        return Block(self.steps[-1:].copy(), self.mean[-1:].copy(), *copies)

    def counts_at(self, level: int) -> Floats:
        if self.counts is not None:
            return self.counts
        return np.where(np.isnan(self.mean), np.float32(0), np.float32(2**level))


def empty_block(width: int, dtype: Any) -> Block:
    return Block(np.zeros(0, np.int64), np.zeros((0, width), dtype))


def widen(values: Floats, width: int, fill: float = np.nan) -> Floats:
    """The same rows with columns added at the end."""
    if values.shape[1] == width:
        return values
    out = np.full((len(values), width), fill, values.dtype)
    out[:, : values.shape[1]] = values
    return out


def join_blocks(blocks: Sequence[Block], level: int) -> Block:
    """One block of all rows, in that order; of the widest one's width."""
    if len(blocks) == 1:
        return blocks[0]
    width = max(b.width for b in blocks)
    steps = np.concatenate([b.steps for b in blocks])
    mean = np.concatenate([widen(b.mean, width) for b in blocks])
    if all(b.low is None for b in blocks):
        return Block(steps, mean)
    low = np.concatenate([widen(b.least, width) for b in blocks])
    high = np.concatenate([widen(b.greatest, width) for b in blocks])
    counts = None
    if any(b.counts is not None for b in blocks):
        counts = np.concatenate([widen(b.counts_at(level), width, 0) for b in blocks])
    return Block(steps, mean, low, high, counts)


def first_rows(blocks: Sequence[Block], rows: int) -> list[Block]:
    """The first rows of consecutive blocks, not joined: blocks of different widths would all become wide."""
    kept: list[Block] = []
    for block in blocks:
        if rows > 0:
            kept.append(block.rows(slice(None, rows)))
            rows -= len(block)
    return kept


def last_rows(blocks: Sequence[Block], rows: int) -> list[Block]:
    kept: list[Block] = []
    for block in reversed(blocks):
        if rows > 0:
            kept.insert(0, block.rows(slice(-rows, None)))
            rows -= len(block)
    return kept


def merge_pairs(block: Block, level: int, keeps_nan: bool) -> Block:
    """Half as many rows of the next level, from an even number of rows.

    With `keeps_nan` one NaN makes its row NaN in mean, low and high (a loss). Without, NaN means "not measured" and
    is left out (a statistic of a tensor).
    """
    first, second = block.rows(slice(0, None, 2)), block.rows(slice(1, None, 2))
    with np.errstate(invalid="ignore", over="ignore"):
        mean = first.mean + second.mean
        mean *= 0.5
        if not np.isfinite(mean).all():
            mean = np.where(np.isinf(mean), first.mean * 0.5 + second.mean * 0.5, mean)
        if not keeps_nan and (block.counts is not None or np.isnan(mean).any()):
            return _join_measured(first, second, first.counts_at(level), second.counts_at(level), 2.0 ** (level + 1))
        low = np.minimum(first.least, second.least)
        high = np.maximum(first.greatest, second.greatest)
    return Block(second.steps, mean, low, high)


def fold(parts: Sequence[tuple[int, Block]], keeps_nan: bool) -> Block:
    """One row of single rows with their levels, oldest first: what is left over at the end of a history."""
    level, total = parts[0]
    looks = 2**level
    counts = None if keeps_nan else total.counts_at(level)
    total = Block(total.steps, total.mean, total.least, total.greatest, counts)
    for level, part in parts[1:]:
        if keeps_nan:
            total = _join_looks(total, part, looks, 2**level)
        else:
            width = max(total.width, part.width)
            total, part = _widened(total, width, 0), _widened(part, width, level)
            total = _join_measured(total, part, total.counts_at(0), part.counts_at(level), None)
        looks += 2**level
    return total


def _widened(block: Block, width: int, level: int) -> Block:
    if block.width == width:
        return block
    arrays = (widen(a, width) for a in (block.mean, block.least, block.greatest))
    return Block(block.steps, *arrays, widen(block.counts_at(level), width, 0))


def _join_looks(first: Block, second: Block, looks: int, more: int) -> Block:
    share = looks / (looks + more)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = first.mean * share + second.mean * (1 - share)
        low, high = np.minimum(first.least, second.least), np.maximum(first.greatest, second.greatest)
    return Block(second.steps, mean, low, high)


def _join_measured(first: Block, second: Block, n_first: Floats, n_second: Floats, full: float | None) -> Block:
    looks = n_first + n_second
    share = np.divide(n_first, looks, out=np.zeros_like(looks), where=looks > 0)
    with np.errstate(invalid="ignore", over="ignore"):
        both = first.mean * share + second.mean * (1 - share)
        mean = np.where(n_first == 0, second.mean, np.where(n_second == 0, first.mean, both))
        low, high = np.fmin(first.least, second.least), np.fmax(first.greatest, second.greatest)
    if full is not None and bool(((looks == 0) | (looks == full)).all()):
        return Block(second.steps, mean, low, high)
    return Block(second.steps, mean, low, high, looks)
