"""The files of one rank, as one process after the other wrote them: ordered, checked, read signal by signal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchdoctor.store import format as fmt
from torchdoctor.store.blocks import Block
from torchdoctor.store.ceiling import Ceiling
from torchdoctor.store.columns import numbers, vectors
from torchdoctor.store.digest import Digest, Name
from torchdoctor.store.history import History, State
from torchdoctor.store.intake import Portion, interleave
from torchdoctor.store.ledger import KEEP_FIRST, KEEP_LAST, FactLog, read_facts
from torchdoctor.store.names import DIGEST, FACTS, HISTOGRAMS, LEDGER, SCALARS, SERIES, STATS, FileName
from torchdoctor.store.streams import Stream, map_file, read_batches, scan

MAX_SERIES = 100_000
CHUNK_ROWS = 4096
"""Rows put together from small batches before they are merged: numpy's cost is by the call."""


class MovedError(Exception):
    """A file is gone: the run is being recorded, and a digest has taken its place. Look again."""


@dataclass(frozen=True)
class SegmentFile:
    """A segment as it was when the run was opened; what is appended later is not read."""

    path: Path
    size: int
    stream: Stream
    meta: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> SegmentFile | None:
        data = map_file(path)
        if data is None:
            if not path.exists():
                raise MovedError(path.name)
            return None
        stream = scan(data)
        return None if stream is None else cls(path, data.size, stream, fmt.read_meta(stream.schema))

    def batches(self, fields: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Batches with these columns only, as many rows as there were at first (compaction may have joined them)."""
        data = map_file(self.path)
        if data is None:
            raise MovedError(self.path.name)
        stream = self.stream if data.size == self.size else scan(data)
        left = self.stream.rows
        if stream is None or stream.schema != self.stream.schema:
            return
        for batch in read_batches(data, stream, fields):
            if batch.num_rows and left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows


class Session:
    """What one process recorded."""

    def __init__(self, folder: Path, names: Sequence[FileName]) -> None:
        self._folder = folder
        self._names = sorted(names, key=lambda n: n.number)
        self.digest = self._open_digest()
        self._cut = _number(self.digest)
        self._series = self._read_series()
        self._scalars = [f for f in self._files(SCALARS, self._cut) if f.stream.schema == fmt.SCALARS_SCHEMA]
        self._stats = [f for f in self._files(STATS, self._cut) if _is_stats(f)]
        self.histograms = [f for f in self._files(HISTOGRAMS) if _is_histograms(f)]
        self.names: set[Name] = set(self.digest.parts) if self.digest else set()
        self.first_step, self.last_step = self._survey()

    def _files(self, table: str, since: int = 0) -> Iterator[SegmentFile]:
        for name in self._names:
            if name.table == table and name.number >= since:
                file = SegmentFile.open(self._folder / str(name))
                if file is not None and file.stream.rows:
                    yield file

    def _open_digest(self) -> Digest | None:
        """The last digest that is whole."""
        for name in reversed([n for n in self._names if n.table == DIGEST]):
            digest = Digest.open(self._folder / str(name))
            if digest is not None:
                return digest
            if not (self._folder / str(name)).exists():
                raise MovedError(str(name))
        return None

    def _read_series(self) -> dict[int, Name]:
        found: dict[int, Name] = {}
        for file in self._files(SERIES):
            if file.stream.schema != fmt.SERIES_SCHEMA:
                continue
            for batch in file.batches((0, 1, 2)):
                for row in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    if len(found) < MAX_SERIES:
                        found.setdefault(row[0], row[1:])
        return found

    def _survey(self) -> tuple[int, int]:
        """Collect the signals that have data, and find the first and the last step."""
        steps = [self.digest.first_step, self.digest.last_step] if self.digest else []
        for file in self._scalars:
            for batch in file.batches((0, 1)):
                taken = numbers(batch.column(0))
                steps += [int(taken.min()), int(taken.max())]
                ids = np.unique(numbers(batch.column(1)))
                self.names.update(self._series[i] for i in ids.tolist() if i in self._series)
        for file in self._stats:
            for batch in file.batches((1,)):
                taken = numbers(batch.column(0))
                steps += [int(taken.min()), int(taken.max())]
            self.names.update((name, "") for name in file.stream.schema.names[2:])
        return (min(steps), max(steps)) if steps else (0, -1)

    def feed(self, history: History | None, name: Name, offset: int) -> History | None:
        """Add this session's looks of a signal to the history, their steps moved by `offset`; begin one if need be."""
        try:
            state = self.digest.state(name) if self.digest else None
        except FileNotFoundError as error:
            raise MovedError(str(error)) from None
        if state is not None:
            state = _shift(state, offset) if offset else state
            if history is None:
                history = History.restore(state)
            else:
                history.append(state)
        ids = [i for i, known in self._series.items() if known == name]
        for steps, values in self._scalar_chunks(ids):
            history = history or History()
            if history.columns is None:
                history.extend(steps + offset, values)
        for _, steps, columns, matrix in _merge_groups(self._groups_of(name)):
            history = history or History(())
            if history.columns is not None:
                history.extend(steps + offset, matrix, columns)
        return history

    def _scalar_chunks(self, ids: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        waiting: list[tuple[np.ndarray, np.ndarray]] = []
        held = 0
        for file in self._scalars if ids else ():
            for batch in file.batches((0, 1, 2)):
                series = numbers(batch.column(1))
                at = np.flatnonzero(series == ids[0] if len(ids) == 1 else np.isin(series, ids))
                if not len(at):
                    continue
                waiting.append((numbers(batch.column(0))[at], numbers(batch.column(2))[at]))
                held += len(at)
                if held >= CHUNK_ROWS:
                    yield tuple(np.concatenate(c) for c in zip(*waiting, strict=True))  # type: ignore[misc]
                    waiting, held = [], 0
        if waiting:
            yield tuple(np.concatenate(c) for c in zip(*waiting, strict=True))  # type: ignore[misc]

    def _groups_of(self, name: Name) -> list[Iterator[Portion]]:
        """For each set of columns that the signal was recorded with, its rows in portions."""
        signal, key = name
        groups: dict[tuple[Any, ...], list[SegmentFile]] = {}
        for file in self._stats if not key else ():
            signals = tuple(file.stream.schema.names[2:])
            if signal in signals:
                groups.setdefault((tuple(file.meta["columns"]), signals), []).append(file)
        return [_portions(files, columns, 2 + signals.index(signal)) for (columns, signals), files in groups.items()]

    def read_facts(self, log: FactLog, offset: int, ceiling: Ceiling) -> None:
        cut = 0
        for name in reversed([n for n in self._names if n.table == LEDGER]):
            file = SegmentFile.open(self._folder / str(name))
            if file is not None and _is_facts(file) and file.stream.closed:
                cut = name.number
                log.limit(*(_bounded(file.meta.get(k), n) for k, n in (("first", KEEP_FIRST), ("last", KEEP_LAST))))
                if ceiling.admits_facts(file.size):
                    self._add_facts(file, log, offset)
                break
        for file in self._files(FACTS, cut):
            if _is_facts(file) and ceiling.admits_facts(file.size):
                self._add_facts(file, log, offset)

    def _add_facts(self, file: SegmentFile, log: FactLog, offset: int) -> None:
        for batch in file.batches((0, 1, 2, 3, 4)):
            rows = zip(*(c.to_pylist() for c in batch.columns), strict=True)
            for entry in read_facts(rows):
                if not log.holds(entry.kind, entry.subject, entry.data):
                    log.add(replace(entry, step=entry.step + offset))


def open_sessions(folder: Path, rank: int, ceiling: Ceiling) -> list[Session]:
    """The sessions of a rank in order. Looks again if files change places meanwhile."""
    for _ in range(5):
        names = _list(folder, rank, ceiling)
        by_session: dict[tuple[int, int], list[FileName]] = {}
        for name in names:
            by_session.setdefault((name.session, name.pid), []).append(name)
        try:
            sessions = [Session(folder, members) for _, members in sorted(by_session.items())]
        except MovedError:
            continue
        if {n for n in _list(folder, rank, Ceiling()) if n.table == DIGEST} <= names:
            return sessions
    return []


def _list(folder: Path, rank: int, ceiling: Ceiling) -> set[FileName]:
    """Files without a byte hold nothing yet."""
    found = []
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if not ceiling.admits_listed(number):
                break
            name = FileName.parse(entry.name)
            if name is not None and name.rank == rank and _has_bytes(entry):
                found.append(name)
    return set(sorted(found)[: ceiling.cut_files(len(found))])


def _has_bytes(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size > 0
    except OSError:  # gone meanwhile
        return False


def _portions(files: Sequence[SegmentFile], columns: tuple[str, ...], at: int) -> Iterator[Portion]:
    waiting: list[tuple[np.ndarray, ...]] = []
    held = 0
    for file in files:
        for batch in file.batches((0, 1, at)):
            waiting.append((numbers(batch.column(0)), numbers(batch.column(1)), vectors(batch.column(2))))
            held += batch.num_rows
            if held >= CHUNK_ROWS:
                yield _join(waiting, columns)
                waiting, held = [], 0
    if waiting:
        yield _join(waiting, columns)


def _join(waiting: Sequence[tuple[np.ndarray, ...]], columns: tuple[str, ...]) -> Portion:
    rows, steps, values = waiting[0] if len(waiting) == 1 else (np.concatenate(c) for c in zip(*waiting, strict=True))
    return rows, steps, columns, values


def _merge_groups(groups: Sequence[Iterator[Portion]]) -> Iterator[Portion]:
    """Portions of several groups in the order of recording, however each group was cut into portions."""
    if len(groups) == 1:
        yield from groups[0]
        return
    heads = {i: portion for i, group in enumerate(groups) if (portion := next(group, None)) is not None}
    while heads:
        bound = min(int(portion[0][-1]) for portion in heads.values())
        ready: list[Portion] = []
        for i, (rows, steps, columns, values) in list(heads.items()):
            n = max(int(np.searchsorted(rows, bound, side="right")), int(rows[-1] == bound) * len(rows))
            if n:
                ready.append((rows[:n], steps[:n], columns, values[:n]))
            if n < len(rows):
                heads[i] = (rows[n:], steps[n:], columns, values[n:])
            else:
                following = next(groups[i], None)
                if following is None:
                    del heads[i]
                else:
                    heads[i] = following
        yield from interleave(ready)


def _number(digest: Digest | None) -> int:
    name = FileName.parse(digest.path.name) if digest else None
    return name.number if name else 0


def _is_stats(file: SegmentFile) -> bool:
    """Whether the schema is one of ours, its list sizes what its columns say."""
    columns = fmt.names_in(file.meta.get("columns"))
    signals = file.stream.schema.names[2:]
    return columns is not None and file.stream.schema == fmt.stats_schema(columns, signals) and _distinct(signals)


def _is_histograms(file: SegmentFile) -> bool:
    columns, bins, signal = (file.meta.get(k) for k in ("columns", "bins", "signal"))
    names = fmt.names_in(columns)
    if names is None or not isinstance(signal, str) or not isinstance(bins, int) or not 0 < bins <= 100_000:
        return False
    if len(names) * bins >= 2**31:
        return False
    return file.stream.schema == fmt.histograms_schema(signal, names, bins)


def _is_facts(file: SegmentFile) -> bool:
    return file.stream.schema == fmt.FACTS_SCHEMA


def _distinct(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names)


def _bounded(value: Any, most: int) -> int:
    return value if isinstance(value, int) and 1 <= value <= most else most


def _shift(state: State, offset: int) -> State:
    def move(block: Block) -> Block:
        return replace(block, steps=block.steps + offset)

    def move_all(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        return tuple(map(move, blocks))

    pending = tuple(None if p is None else move(p) for p in state.pending)
    return replace(
        state, done=move_all(state.done), pending=pending, head=move_all(state.head), tail=move_all(state.tail)
    )
