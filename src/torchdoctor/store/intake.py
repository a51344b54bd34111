"""What was recorded since the last flush -> Arrow batches to write, and histories for the live view."""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchdoctor.facts import Fact
from torchdoctor.store import format as fmt
from torchdoctor.store.blocks import Floats, Ints
from torchdoctor.store.columns import from_numpy, from_values
from torchdoctor.store.history import MIN_ROWS, History, State
from torchdoctor.store.ledger import MAX_TEXT, Entry, FactLog, read_fact, write_fact
from torchdoctor.store.names import FACTS, HISTOGRAMS, SCALARS, SERIES, STATS

log = logging.getLogger("torchdoctor")

Scalar = tuple[str, str, int, float]
"""signal, key, step, value"""
Row = tuple[int, tuple[str, ...], Mapping[str, Floats]]
"""step, columns, values by signal"""
Counts = tuple[int, str, tuple[str, ...], Floats]
"""step, signal, columns, counts"""
Fresh = tuple[Fact, int, str, float]
"""fact, step, subject, time"""

Group = tuple[tuple[str, ...], tuple[str, ...]]
"""columns, signals: rows that go to one table"""
Member = tuple[int, int, Mapping[str, Floats]]
"""position in the order of recording, step, values by signal"""


@dataclass(frozen=True)
class Write:
    """A batch on its way to disk. Batches of one table and key go to the same segment."""

    table: str
    key: Hashable
    schema: pa.Schema
    batch: pa.RecordBatch


class Intake:
    """Not thread-safe: the recorder holds its lock around every call.

    `writes` is what there is to write; the recorder empties it. A call that fails half-way leaves there what it had.
    """

    def __init__(self, limits: fmt.Limits) -> None:
        self.steps = 0
        self.first_step = 0
        self.dropped: Counter[str] = Counter()
        self.facts = FactLog()
        self.writes: list[Write] = []
        self._limits = limits
        self._series: dict[tuple[str, str], int] = {}
        self._scalars: list[History] = []
        self._matrices: dict[str, History] = {}
        self._groups: dict[Group, pa.Schema] = {}
        self._union: dict[tuple[str, ...], dict[str, None]] = {}
        self._rows = 0
        self._histogram_rows: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def states(self) -> dict[tuple[str, str], State]:
        """Every signal's history as it is now, by (signal, key)."""
        scalars = {name: self._scalars[i].state() for name, i in self._series.items()}
        matrices = {(name, ""): history.state() for name, history in self._matrices.items()}
        return {name: s for name, s in {**scalars, **matrices}.items() if s.looks}

    def least_nbytes(self) -> int:
        """What matrices' histories take once they have shrunk as far as they can."""
        return sum(4 * 3 * MIN_ROWS * len(history.columns or ()) for history in self._matrices.values())

    def nbytes(self) -> int:
        return sum(history.state().nbytes for history in (*self._scalars, *self._matrices.values()))

    def _note_steps(self, steps: Ints) -> None:
        first, last = int(steps.min()), int(steps.max())
        self.first_step = min(self.first_step, first) if self.steps else first
        self.steps = max(self.steps, last + 1)

    def shrink(self) -> bool:
        """Halve the rows of all matrices' histories; False if none could be."""
        shrunk = [history.shrink() for history in self._matrices.values()]
        return any(shrunk)

    def take_scalars(self, events: Sequence[Scalar]) -> None:
        names, keys, steps, values = zip(*events, strict=True)
        ids = [*map(self._series.get, zip(names, keys, strict=True))]
        if None in ids:
            self._add_series(zip(names, keys, strict=True))
            ids = [*map(self._series.get, zip(names, keys, strict=True))]
        try:
            columns = np.array(ids, np.int32), np.array(array("q", steps)), np.array(array("d", values))
        except (TypeError, ValueError, OverflowError):
            sound = [event for at, event in zip(ids, events, strict=True) if at is not None and _are_numbers(event)]
            self.dropped["scalars: no number, or too many names"] += len(events) - len(sound)
            if sound:
                self.take_scalars(sound)
            return
        self._write_scalars(*columns)

    def _add_series(self, names: Iterable[tuple[str, str]]) -> None:
        new = []
        for name, key in dict.fromkeys(names):
            if (name, key) in self._series or not _is_name(name) or not _is_name(key):
                continue
            if len(self._series) < self._limits.series:
                new.append((len(self._scalars), name, key))
                self._series[name, key] = len(self._scalars)
                self._scalars.append(History())
        if new:
            self.writes.append(Write(SERIES, "", fmt.SERIES_SCHEMA, row_batch(new, fmt.SERIES_SCHEMA)))

    def _write_scalars(self, ids: Ints, steps: Ints, values: Floats) -> None:
        by = np.argsort(ids, kind="stable")
        ids, steps, values = ids[by], steps[by], values[by]
        edges = np.flatnonzero(np.diff(ids)) + 1
        for start, stop in zip([0, *edges], [*edges, len(ids)], strict=True):
            self._scalars[ids[start]].extend(steps[start:stop], values[start:stop])
        self._note_steps(steps)
        batch = pa.record_batch([from_numpy(a) for a in (steps, ids, values)], schema=fmt.SCALARS_SCHEMA)
        self.writes.append(Write(SCALARS, "", fmt.SCALARS_SCHEMA, batch))

    def take_rows(self, rows: Sequence[Row]) -> None:
        portions: dict[str, list[Portion]] = {}
        for (columns, signals), members in self._group(rows).items():
            order, steps = (np.array([m[i] for m in members], np.int64) for i in (0, 1))
            arrays = [_stack([m[2][name] for m in members]) for name in signals]
            for name, matrix in zip(signals, arrays, strict=True):
                portions.setdefault(name, []).append((order, steps, columns, matrix))
            self._write_rows(columns, signals, order, steps, arrays)
            self._note_steps(steps)
        for name, parts in portions.items():
            history = self._matrices.setdefault(name, History(()))
            for _, steps, columns, matrix in interleave(parts):
                history.extend(steps, matrix, columns)

    def _group(self, rows: Sequence[Row]) -> dict[Group, list[Member]]:
        """Rows by what they hold, each with its position in the order of recording."""
        grouped: dict[Group, list[Member]] = {}
        for step, columns, values in rows:
            grouped.setdefault((tuple(columns), tuple(values)), []).append((self._rows, int(step), values))
            self._rows += 1
        sound = {g: m for g, m in grouped.items() if g in self._groups and _are_sound(len(g[0]), m)}
        for group, members in grouped.items():
            if group not in sound:
                for row, step, values in members:
                    for other, held in self._assign(group[0], values):
                        sound.setdefault(other, []).append((row, step, held))
        for members in sound.values():
            members.sort(key=lambda m: m[0])
        return sound

    def _assign(self, columns: tuple[str, ...], values: Mapping[str, Any]) -> Iterable[tuple[Group, dict[str, Floats]]]:
        """The group or groups a row belongs to, and its values as they are written there."""
        with np.errstate(over="ignore"):
            held = {name: np.asarray(v, np.float32) for name, v in values.items() if _is_row(v, len(columns))}
        bad = len(values) - len(held)
        group = (columns, tuple(held))
        if group not in self._groups:
            if not _are_names(columns) or not all(map(_is_name, held)):
                held, bad = {}, len(values)
            elif len(self._groups) < self._limits.groups:
                self._groups[group] = fmt.stats_schema(columns, group[1])
        if bad:
            self.dropped["matrices: not one number a column"] += bad
        if not held:
            return ()
        if group in self._groups:
            return ((group, held),)
        return (self._over_union(columns, held),)

    def _over_union(self, columns: tuple[str, ...], held: Mapping[str, Floats]) -> tuple[Group, dict[str, Floats]]:
        """When sets of columns are too many: all columns that these signals ever had."""
        union = self._union.setdefault(tuple(held), {})
        for column in columns:
            if len(union) < fmt.MAX_COLUMNS:
                union.setdefault(column)
        at = {column: i for i, column in enumerate(union)}
        kept = [(i, at[column]) for i, column in enumerate(columns) if column in at]
        wide = {}
        for name, row in held.items():
            wide[name] = np.full(len(at), np.nan, np.float32)
            for of_row, of_union in kept:
                wide[name][of_union] = row[of_row]
        group = (tuple(at), tuple(held))
        if group not in self._groups:
            self._groups[group] = fmt.stats_schema(*group)
        return group, wide

    def _write_rows(
        self, columns: tuple[str, ...], signals: tuple[str, ...], order: Ints, steps: Ints, arrays: list[Floats]
    ) -> None:
        schema = self._groups[columns, signals]
        lists = [pa.FixedSizeListArray.from_arrays(from_numpy(a.reshape(-1)), len(columns)) for a in arrays]
        batch = pa.record_batch([from_numpy(order), from_numpy(steps), *lists], schema=schema)
        self.writes.append(Write(STATS, (columns, signals), schema, batch))

    def take_histograms(self, looks: Sequence[Counts]) -> None:
        for step, signal, columns, counts in looks:
            counts = np.asarray(counts, np.float32)
            columns = tuple(columns)
            if counts.ndim != 2 or len(counts) != len(columns) or not _are_names(columns) or not _is_name(signal):
                self.dropped["histograms: not one row a column"] += 1
                continue
            key = (signal, columns)
            schema = fmt.histograms_schema(signal, columns, counts.shape[1])
            flat = pa.FixedSizeListArray.from_arrays(from_numpy(counts.reshape(-1)), counts.size)
            row = from_values([self._histogram_rows[key]], pa.int64())
            self._histogram_rows[key] += 1
            batch = pa.record_batch([row, from_values([int(step)], pa.int64()), flat], schema=schema)
            self.writes.append(Write(HISTOGRAMS, key, schema, batch))

    def take_facts(self, fresh: Sequence[Fresh]) -> None:
        rows = []
        for fact, step, subject, time in fresh:
            try:
                text = write_fact(fact)
                if self.facts.holds(fact.kind, subject, text):
                    continue
                parsed = read_fact(fact.kind, text)
                row = (int(step), float(time), fact.kind, str(subject), text)
            except (TypeError, ValueError, AttributeError):
                parsed = None
            if parsed is None or len(text) > MAX_TEXT or not self.facts.add(Entry(*row, parsed)):
                self.dropped["facts: too large, too many or of the wrong type"] += 1
                continue
            rows.append(row)
        if rows:
            self.writes.append(Write(FACTS, "", fmt.FACTS_SCHEMA, row_batch(rows, fmt.FACTS_SCHEMA)))


def row_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [from_values(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.record_batch(columns, schema=schema)


MAX_PORTION_CELLS = 1 << 23
"""Rows times columns that are put into one matrix to bring rows into order: 32 MB."""

Portion = tuple[Ints, Ints, tuple[str, ...], Floats]
"""positions in the order of recording, steps, columns, (n, columns) values"""


def interleave(parts: Sequence[Portion]) -> Iterable[Portion]:
    """Rows of several groups in the order in which they were recorded; of one group as they are."""
    if len(parts) == 1:
        return parts
    columns = tuple(dict.fromkeys(c for part in parts for c in part[2]))
    order = np.concatenate([p[0] for p in parts])
    by = np.argsort(order, kind="stable")
    if len(order) * len(columns) > MAX_PORTION_CELLS:
        return _runs(parts, by)
    at = {c: i for i, c in enumerate(columns)}
    values = np.full((len(order), len(columns)), np.nan, np.float32)
    row = 0
    for positions, _, names, matrix in parts:
        values[row : row + len(positions), [at[c] for c in names]] = matrix
        row += len(positions)
    return [(order[by], np.concatenate([p[1] for p in parts])[by], columns, values[by])]


def _runs(parts: Sequence[Portion], by: Ints) -> Iterator[Portion]:
    """The same without a matrix over all columns: neighbours that come from one group, run after run."""
    owner = np.repeat(np.arange(len(parts)), [len(p[0]) for p in parts])[by]
    place = np.concatenate([np.arange(len(p[0])) for p in parts])[by]
    edges = np.flatnonzero(np.diff(owner)) + 1
    for start, stop in zip([0, *edges], [*edges, len(by)], strict=True):
        order, steps, columns, matrix = parts[owner[start]]
        rows = place[start:stop]
        yield order[rows], steps[rows], columns, matrix[rows]


def _is_name(name: Any) -> bool:
    if not isinstance(name, str) or len(name) > fmt.MAX_NAME:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_names(columns: tuple[str, ...]) -> bool:
    return len(columns) <= fmt.MAX_COLUMNS and len(set(columns)) == len(columns) and all(map(_is_name, columns))


def _is_row(values: Any, width: int) -> bool:
    return getattr(values, "shape", None) == (width,)


def _are_sound(width: int, members: Sequence[Member]) -> bool:
    return all(getattr(a, "shape", None) == (width,) for m in members for a in m[2].values())


def _stack(rows: Sequence[Floats]) -> Floats:
    """Rows of equal length as one float32 matrix."""
    with np.errstate(over="ignore"):
        return np.concatenate(rows).reshape(len(rows), -1).astype(np.float32, copy=False)


def _are_numbers(event: Scalar) -> bool:
    try:
        array("q", event[2:3])
        array("d", event[3:4])
    except (TypeError, ValueError, OverflowError):
        return False
    return True
