"""What was recorded since the last flush -> Arrow batches to write, and histories for the live view."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchdoctor.facts import Fact
from torchdoctor.store import format as fmt
from torchdoctor.store.blocks import Floats, Ints
from torchdoctor.store.history import History, State
from torchdoctor.store.ledger import MAX_TEXT, Entry, FactLog, read_fact, write_fact

log = logging.getLogger("torchdoctor")

Scalar = tuple[str, str, int, float]
"""signal, key, step, value"""
Row = tuple[int, tuple[str, ...], dict[str, Floats]]
"""step, columns, values by signal"""
Counts = tuple[int, str, tuple[str, ...], Floats]
"""step, signal, columns, counts"""
Fresh = tuple[Fact, int, str, float]
"""fact, step, subject, time"""


@dataclass(frozen=True)
class Write:
    """A batch on its way to disk. Batches of one table and key go to the same segment."""

    table: str
    key: Hashable
    schema: pa.Schema
    batch: pa.RecordBatch


class Intake:
    """Not thread-safe: the recorder holds its lock around every call."""

    def __init__(self, limits: fmt.Limits) -> None:
        self.steps = 0
        self.first_step = 0
        self.dropped: Counter[str] = Counter()
        self.facts = FactLog()
        self._limits = limits
        self._series: dict[tuple[str, str], int] = {}
        self._scalars: list[History] = []
        self._matrices: dict[str, History] = {}
        self._groups: dict[tuple[tuple[str, ...], tuple[str, ...]], pa.Schema] = {}
        self._union: dict[str, dict[str, None]] = {}
        self._rows = 0
        self._histogram_rows: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def states(self) -> dict[tuple[str, str], State]:
        """Every signal's history as it is now, by (signal, key)."""
        scalars = {name: self._scalars[i].state() for name, i in self._series.items()}
        matrices = {(name, ""): history.state() for name, history in self._matrices.items()}
        return {name: s for name, s in {**scalars, **matrices}.items() if s.looks}

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

    def take_scalars(self, events: Sequence[Scalar]) -> list[Write]:
        ids, steps, values, new = [], [], [], []
        for name, key, step, value in events:
            at = self._series.get((name, key))
            if at is None:
                at = self._add_series(name, key)
                if at is None:
                    continue
                new.append((at, name, key))
            try:
                value = float(value)
                step = int(step)
            except (TypeError, ValueError, OverflowError):
                self.dropped["scalars: not a number"] += 1
                continue
            ids.append(at)
            steps.append(step)
            values.append(value)
        writes = []
        if new:
            columns = [pa.array(c, f.type) for c, f in zip(zip(*new, strict=True), fmt.SERIES_SCHEMA, strict=True)]
            batch = pa.record_batch(columns, schema=fmt.SERIES_SCHEMA)
            writes.append(Write(fmt.SERIES, "", fmt.SERIES_SCHEMA, batch))
        if ids:
            writes.append(self._write_scalars(np.array(ids, np.int32), np.array(steps, np.int64), np.array(values)))
        return writes

    def _add_series(self, name: str, key: str) -> int | None:
        if len(self._series) >= self._limits.series or not _is_name(name) or not _is_name(key):
            self.dropped["scalars: too many or too odd names"] += 1
            return None
        at = self._series[name, key] = len(self._scalars)
        self._scalars.append(History())
        return at

    def _write_scalars(self, ids: Ints, steps: Ints, values: Floats) -> Write:
        by = np.argsort(ids, kind="stable")
        ids, steps, values = ids[by], steps[by], values[by]
        edges = np.flatnonzero(np.diff(ids)) + 1
        for start, stop in zip([0, *edges], [*edges, len(ids)], strict=True):
            self._scalars[ids[start]].extend(steps[start:stop], values[start:stop])
        self._note_steps(steps)
        batch = pa.record_batch([pa.array(a) for a in (steps, ids, values)], schema=fmt.SCALARS_SCHEMA)
        return Write(fmt.SCALARS, "", fmt.SCALARS_SCHEMA, batch)

    def take_rows(self, rows: Sequence[Row]) -> list[Write]:
        grouped: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, int, dict[str, Floats]]]] = {}
        for step, columns, values in rows:
            for group, held in self._assign(tuple(columns), values):
                grouped.setdefault(group, []).append((self._rows, int(step), held))
            self._rows += 1
        writes = []
        portions: dict[str, list[Portion]] = {}
        for (columns, signals), members in grouped.items():
            order, steps = (np.array([m[i] for m in members], np.int64) for i in (0, 1))
            arrays = [np.stack([m[2][name] for m in members]) for name in signals]
            for name, array in zip(signals, arrays, strict=True):
                portions.setdefault(name, []).append((order, steps, columns, array))
            writes.append(self._write_rows(columns, signals, order, steps, arrays))
            self._note_steps(steps)
        for name, parts in portions.items():
            history = self._matrices.setdefault(name, History(()))
            for _, steps, columns, array in interleave(parts):
                history.extend(steps, array, columns)
        return writes

    def _assign(self, columns: tuple[str, ...], values: dict[str, Floats]) -> Iterable[tuple[Any, dict[str, Floats]]]:
        """The group or groups a row belongs to, and its values as they are written there."""
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
        return tuple(self._over_union(name, columns, array) for name, array in held.items())

    def _over_union(self, name: str, columns: tuple[str, ...], array: Floats) -> tuple[Any, dict[str, Floats]]:
        """When sets of columns are too many: each signal for itself, over all columns it ever had."""
        union = self._union.setdefault(name, {})
        for column in columns:
            if len(union) < fmt.MAX_COLUMNS:
                union.setdefault(column)
        at = {column: i for i, column in enumerate(union)}
        wide = np.full(len(at), np.nan, np.float32)
        for column, value in zip(columns, array, strict=True):
            if column in at:
                wide[at[column]] = value
        group = (tuple(at), (name,))
        if group not in self._groups:
            self._groups[group] = fmt.stats_schema(*group)
        return group, {name: wide}

    def _write_rows(
        self, columns: tuple[str, ...], signals: tuple[str, ...], order: Ints, steps: Ints, arrays: list[Floats]
    ) -> Write:
        schema = self._groups[columns, signals]
        lists = [pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), len(columns)) for a in arrays]
        batch = pa.record_batch([pa.array(order), pa.array(steps), *lists], schema=schema)
        return Write(fmt.STATS, (columns, signals), schema, batch)

    def take_histograms(self, looks: Sequence[Counts]) -> list[Write]:
        writes = []
        for step, signal, columns, counts in looks:
            counts = np.asarray(counts, np.float32)
            columns = tuple(columns)
            if counts.ndim != 2 or len(counts) != len(columns) or not _are_names(columns) or not _is_name(signal):
                self.dropped["histograms: not one row a column"] += 1
                continue
            key = (signal, columns)
            schema = fmt.histograms_schema(signal, columns, counts.shape[1])
            flat = pa.FixedSizeListArray.from_arrays(pa.array(counts.reshape(-1)), counts.size)
            row = pa.array([self._histogram_rows[key]], pa.int64())
            self._histogram_rows[key] += 1
            batch = pa.record_batch([row, pa.array([int(step)], pa.int64()), flat], schema=schema)
            writes.append(Write(fmt.HISTOGRAMS, key, schema, batch))
        return writes

    def take_facts(self, fresh: Sequence[Fresh]) -> list[Write]:
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
        if not rows:
            return []
        return [Write(fmt.FACTS, "", fmt.FACTS_SCHEMA, fact_batch(rows, fmt.FACTS_SCHEMA))]


def fact_batch(rows: Sequence[tuple[int, float, str, str, str]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.record_batch(columns, schema=schema)


Portion = tuple[Ints, Ints, tuple[str, ...], Floats]
"""positions in the order of recording, steps, columns, (n, columns) values"""


def interleave(parts: Sequence[Portion]) -> Iterable[Portion]:
    """Rows of several groups in the order in which they were recorded; of one group as they are."""
    if len(parts) == 1:
        return parts
    columns = tuple(dict.fromkeys(c for part in parts for c in part[2]))
    at = {c: i for i, c in enumerate(columns)}
    order = np.concatenate([p[0] for p in parts])
    values = np.full((len(order), len(columns)), np.nan, np.float32)
    row = 0
    for positions, _, names, array in parts:
        values[row : row + len(positions), [at[c] for c in names]] = array
        row += len(positions)
    by = np.argsort(order, kind="stable")
    return [(order[by], np.concatenate([p[1] for p in parts])[by], columns, values[by])]


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
