"""A signal of any length in bounded memory, for the live view and for readers alike.

While a signal has no more looks than its limit (run.HISTORY_ROWS; fewer for very many columns) every row is one look.
Then rows are merged two by two and from there on a row stands for 2, 4, 8 ... looks; the first and the last
run.RAW_ROWS looks stay one by one. In merged rows

    a scalar's NaN makes mean, low and high of its row NaN, so that it can be seen from afar;
    a matrix's NaN means "not measured": mean, low and high are over the looks that were.

Columns that appear later are added at the end and are NaN before. Looks of one signal at the same step (two models'
tensors, say) are shown as one row while rows are looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torchdoctor.run import HISTORY_ROWS, RAW_ROWS, Trace
from torchdoctor.store.blocks import (
    Block,
    Floats,
    Ints,
    empty_block,
    first_rows,
    fold,
    join_blocks,
    last_rows,
    merge_pairs,
    widen,
)
from torchdoctor.store.format import MAX_COLUMNS

MAX_CELLS = 1 << 19
"""Rows times columns of one signal: 6 MB of mean, low and high; up to 256 columns keep all HISTORY_ROWS."""
MIN_ROWS = 32
CHUNKS = 32
"""Portions that are joined into one when there are more."""
PORTION_CELLS = 1 << 22
"""Rows times columns that are taken in at once, so that few rows of very many columns cost no more than many of few."""
ALIGNED_ROWS, ALIGNED_CELLS = 1024, 1 << 18
"""Looks are merged in portions that end at multiples of so many, so that they leave little waiting; and of no more than
fits the processor's cache."""

Order = Callable[[str], float]


def rows_allowed(width: int, rows: int = HISTORY_ROWS) -> int:
    """Rows that a signal of so many columns may have."""
    while rows > MIN_ROWS and rows * width > MAX_CELLS:
        rows //= 2
    return rows


def raw_rows_allowed(width: int, rows: int = HISTORY_ROWS) -> int:
    """Looks that such a signal keeps one by one at either end."""
    return max(1, rows_allowed(width, rows) * RAW_ROWS // HISTORY_ROWS)


@dataclass(frozen=True)
class State:
    """A history at one moment. Its blocks are never written to, so it stays as it was while the history goes on."""

    columns: tuple[str, ...] | None
    """None for a scalar"""
    rows: int
    """most rows it may have (before its width is considered)"""
    looks: int
    level: int
    done: tuple[Block, ...]
    """complete rows of the level"""
    pending: tuple[Block | None, ...]
    """one row or none of each lower level: the looks of the row that is not complete"""
    head: tuple[Block, ...]
    tail: tuple[Block, ...]
    """looks; both empty while level is 0, when `done` holds them all"""

    @property
    def nbytes(self) -> int:
        parts = (*self.done, *(p for p in self.pending if p is not None), *self.head, *self.tail)
        return sum(b.nbytes for b in parts)

    @property
    def width(self) -> int:
        return 1 if self.columns is None else len(self.columns)

    def trace(self, order: Order | None = None) -> Trace:
        """As rules read it, columns sorted by `order` (those of equal order as they came)."""
        blocks = [b for b in self.done if len(b)]
        parts = [(k, p) for k, p in reversed(list(enumerate(self.pending))) if p is not None]
        if parts:
            blocks.append(fold(parts, self.columns is None))
        main = self._as_trace(blocks, order, self.level)
        if self.level == 0:
            return main
        raw = raw_rows_allowed(self.width, self.rows)
        head = self._as_trace(first_rows(self.head, raw), order, 0)
        tail = self._as_trace(last_rows(self.tail, raw), order, 0)
        return replace(main, head=head, tail=tail)

    def _as_trace(self, blocks: list[Block], order: Order | None, level: int) -> Trace:
        if not blocks:
            return Trace.empty(self.columns or ())
        block = join_blocks(blocks, level)
        if self.columns is None:
            return _trace(block.steps, [a[:, 0] for a in _faces(block)], (), level)
        faces = [widen(a, self.width) for a in _faces(block)]
        columns, steps = self.columns, block.steps
        if order is not None:
            by = sorted(range(len(columns)), key=lambda i: (order(columns[i]), i))
            if by != list(range(len(columns))):
                columns, faces = tuple(columns[i] for i in by), [a[:, by] for a in faces]
        if level == 0:
            steps, faces[0] = _one_row_a_step(steps, faces[0])
        return _trace(steps, faces, columns, level)


def _faces(block: Block) -> list[Floats]:
    return [block.mean] if block.low is None else [block.mean, block.least, block.greatest]


def _trace(steps: Ints, faces: list[Floats], columns: tuple[str, ...], level: int) -> Trace:
    arrays = [np.array(a) for a in faces]
    mean, low, high = arrays if len(arrays) == 3 else arrays * 3
    return Trace(np.array(steps), mean, low, high, columns, 2**level)


def _one_row_a_step(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    same = np.flatnonzero(steps[1:] == steps[:-1]) + 1
    if not len(same):
        return steps, values
    values = np.array(values)
    for row in same[::-1]:
        values[row - 1] = np.where(np.isnan(values[row]), values[row - 1], values[row])
    return np.delete(steps, same), np.delete(values, same, axis=0)


class History:
    """Takes looks in any portions; `state()` is what they came to."""

    def __init__(self, columns: Sequence[str] | None = None, rows: int = HISTORY_ROWS) -> None:
        self.columns = None if columns is None else tuple(columns)
        self.rows = rows
        self.looks = 0
        self.level = 0
        self._dtype: Any = np.float64 if columns is None else np.float32
        self._done: list[Block] = []
        self._pending: list[Block | None] = []
        self._head: list[Block] = []
        self._tail: list[Block] = []
        self._index = {name: i for i, name in enumerate(self.columns or ())}
        self._places: dict[tuple[str, ...], list[int] | None] = {}

    @property
    def _width(self) -> int:
        return 1 if self.columns is None else len(self.columns)

    @property
    def _allowed(self) -> int:
        return rows_allowed(self._width, self.rows)

    @property
    def _raw_rows(self) -> int:
        return raw_rows_allowed(self._width, self.rows)

    def extend(self, steps: Ints, values: Floats, columns: tuple[str, ...] | None = None) -> None:
        """Add looks: `values` is (n,) for a scalar, (n, columns) for a matrix. The arrays are kept, not copied."""
        if columns is None:
            values = values[:, None]
        places = None if columns is None or columns == self.columns else self._places_of(columns)
        most = max(1, PORTION_CELLS // max(1, self._width))
        aligned = max(ALIGNED_ROWS, 1 << (ALIGNED_CELLS // max(1, self._width)).bit_length() >> 1)
        start = 0
        while start < len(steps):
            end = start + min(most, aligned - self.looks % aligned)
            part = values[start:end] if places is None else self._placed(values[start:end], places)
            self._add(Block(steps[start:end], part))
            start = end

    def _add(self, block: Block) -> None:
        before = self.looks
        self.looks += len(block)
        self._settle()
        if self.level:
            if before < self._raw_rows:
                self._head.append(block.rows(slice(None, self._raw_rows - before)))
            self._keep_tail(block)
        self._push(block, 0)

    def _places_of(self, columns: tuple[str, ...]) -> list[int] | None:
        """Where these columns stand among all, new ones at the end; None if that is where they are."""
        if columns not in self._places:
            for name in columns:
                if len(self._index) < MAX_COLUMNS:
                    self._index.setdefault(name, len(self._index))
            self.columns = tuple(self._index)
            if len(self._places) >= CHUNKS:
                self._places.clear()
            places = [self._index.get(c, -1) for c in columns]
            self._places[columns] = None if places == list(range(len(places))) else places
        return self._places[columns]

    def _placed(self, values: Floats, places: list[int]) -> Floats:
        out = np.full((len(values), self._width), np.nan, self._dtype)
        known = [i for i, place in enumerate(places) if place >= 0]
        out[:, [places[i] for i in known]] = values[:, known]
        return out

    def _settle(self) -> None:
        while -(-self.looks >> self.level) > self._allowed:
            self._raise_level()

    def _raise_level(self) -> None:
        rows = join_blocks(self._done, self.level) if self._done else empty_block(0, self._dtype)
        if self.level == 0:
            raw = self._raw_rows
            self._head, self._tail = first_rows(self._done, raw), last_rows(self._done, raw)
        even = len(rows) // 2 * 2
        self._pending.append(rows.last_row() if even < len(rows) else None)
        self._done = [merge_pairs(rows.rows(slice(None, even)), self.level, self.columns is None)] if even else []
        self.level += 1

    def _push(self, block: Block, level: int) -> None:
        """Carry rows of a level upwards, like adding to a binary number."""
        if level == self.level:
            self._done.append(block)
            if len(self._done) > CHUNKS:
                self._done = [join_blocks(self._done, level)]
            return
        waiting = self._pending[level]
        if waiting is not None:
            self._pending[level] = None
            pair = join_blocks([waiting, block.rows(slice(None, 1))], level)
            self._push(merge_pairs(pair, level, self.columns is None), level + 1)
            block = block.rows(slice(1, None))
        even = len(block) // 2 * 2
        if even < len(block):
            self._pending[level] = block.last_row()
        if even:
            self._push(merge_pairs(block.rows(slice(None, even)), level, self.columns is None), level + 1)

    def _keep_tail(self, block: Block) -> None:
        self._tail = last_rows([*self._tail, block], self._raw_rows)
        if len(self._tail) > CHUNKS:
            self._tail = [join_blocks(self._tail, 0)]

    def shrink(self) -> bool:
        """Halve the rows it may have; False if they are as few as they can be."""
        if self._allowed <= MIN_ROWS:
            return False
        self.rows = self._allowed // 2
        self._settle()
        return True

    def state(self) -> State:
        parts = (tuple(p) for p in (self._done, self._pending, self._head, self._tail))
        return State(self.columns, self.rows, self.looks, self.level, *parts)

    @classmethod
    def restore(cls, state: State) -> History:
        """A history that goes on from that state."""
        history = cls(state.columns, state.rows)
        history.looks, history.level = state.looks, state.level
        history._done, history._pending = list(state.done), list(state.pending)
        history._head, history._tail = list(state.head), list(state.tail)
        history._settle()
        return history

    def append(self, state: State) -> None:
        """Add what a later session came to: its rows stay as they are, so the row between the two may be short."""
        self.rows = min(self.rows, state.rows)
        if state.level == 0:
            for block in state.done:
                self.extend(block.steps, *self._looks(block, state))
            return
        while self.level < state.level:
            self._raise_level()
        self._close_row(state.level)
        before = self.looks
        for block in state.head:
            if before < self._raw_rows:
                self._head.append(self._moved(block, state).rows(slice(None, self._raw_rows - before)))
                before += len(block)
        for block in state.tail:
            self._keep_tail(self._moved(block, state))
        self.looks += state.looks
        self._settle()
        for block in state.done:
            self._push(self._moved(block, state), state.level)
        for level in reversed(range(state.level)):
            waiting = state.pending[level]
            if waiting is not None:
                self._push(self._moved(waiting, state), level)

    @staticmethod
    def _looks(block: Block, state: State) -> tuple[Floats, tuple[str, ...] | None]:
        if state.columns is None:
            return block.mean[:, 0], None
        return block.mean, state.columns[: block.width]

    def _moved(self, block: Block, state: State) -> Block:
        """The block with its columns where this history has them."""
        if state.columns is None:
            return block
        places = self._places_of(state.columns[: block.width])
        if places is None:
            return block
        faces = [None if a is None else self._placed(a, places) for a in (block.mean, block.low, block.high)]
        counts = None if block.counts is None else np.nan_to_num(self._placed(block.counts, places))
        return Block(block.steps, *faces, counts)  # type: ignore[arg-type]

    def _close_row(self, level: int) -> None:
        """Complete what waits below `level` as it is, so that rows of that level can follow."""
        parts = [(k, self._pending[k]) for k in reversed(range(level)) if self._pending[k] is not None]
        if not parts:
            return
        row = fold([(k, p) for k, p in parts if p is not None], self.columns is None)
        for k, _ in parts:
            self._pending[k] = None
        self.looks = -(-self.looks >> level) << level
        self._settle()
        self._push(row, level)
