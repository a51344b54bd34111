"""Rewriting what was written: small batches into large ones, fewer histograms, digests for segments. In pieces.

Each job is an iterator. The writer's thread advances it between flushes, and drops it when the run ends: a job's result
takes its place by one rename, so that whatever was not finished never was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from torchdoctor.store import format as fmt
from torchdoctor.store.columns import from_numpy, numbers
from torchdoctor.store.digest import Name, write_digest
from torchdoctor.store.history import State
from torchdoctor.store.intake import row_batch
from torchdoctor.store.ledger import Entry
from torchdoctor.store.names import DIGEST, FACTS, HISTOGRAMS, LEDGER, SCALARS, STATS, TEMPORARY, FileName
from torchdoctor.store.segments import PIECE_BYTES, Segment, SegmentSet, replacing
from torchdoctor.store.streams import map_file, read_batches, scan

MATRIX_TABLES = (SCALARS, STATS)
Job = Generator[None, None, None]


def compact(segments: SegmentSet, name: FileName) -> Job:
    """Join a complete segment's batches into few large ones."""
    yield from _rewrite(segments, name, lambda batch: batch)


def thin_histograms(segments: SegmentSet, stride: int) -> Job:
    """Keep every stride-th histogram of each signal in the complete segments."""

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(from_numpy(numbers(batch.column(0)) % stride == 0))

    for name in [n for n in segments.closed if n.table == HISTOGRAMS]:
        yield from _rewrite(segments, name, keep)


def _rewrite(segments: SegmentSet, name: FileName, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Job:
    path = segments.folder / str(name)
    data = map_file(path)
    stream = scan(data) if data is not None else None
    if data is None or stream is None:
        return
    with replacing(path, stream.schema) as target:
        waiting: list[pa.RecordBatch] = []
        for batch in read_batches(data, stream):
            waiting.append(change(batch))
            if sum(b.nbytes for b in waiting) >= PIECE_BYTES:
                _append(target, waiting)
                yield
        _append(target, waiting)
    if name in segments.closed:
        segments.add(name, target.size)


def _append(target: Segment, waiting: list[pa.RecordBatch]) -> None:
    joined = pa.Table.from_batches(waiting).combine_chunks().to_batches() if waiting else []
    for batch in joined:
        target.append(batch)
    waiting.clear()


def digest(segments: SegmentSet, states: Mapping[Name, State], cut: int, before: int, steps: tuple[int, int]) -> Job:
    """Write a digest that stands for all segments numbered below `cut`, and delete those numbered below `before`.

    Segments between `before` and `cut` are covered twice: the digest serves, they keep the detail for a while.
    """
    name = FileName(DIGEST, segments.rank, segments.session, segments.pid, cut)
    path = segments.folder / str(name)
    yield from write_digest(path, states, steps)
    segments.add(name, path.stat().st_size)
    for old in list(segments.closed):
        superseded = old.table == DIGEST and old.number < cut
        if superseded or (old.table in MATRIX_TABLES and old.number < before):
            segments.delete(old)
            yield


def write_ledger(segments: SegmentSet, entries: Sequence[Entry], kept: tuple[int, int], cut: int) -> Job:
    """Write the facts that are kept, in place of all facts in segments numbered below `cut`."""
    name = FileName(LEDGER, segments.rank, segments.session, segments.pid, cut)
    rows = [(e.step, e.time, e.kind, e.subject, e.data) for e in entries]
    schema = fmt.ledger_schema(*kept)
    with replacing(segments.folder / str(name), schema) as target:
        for start in range(0, len(rows), 1000):
            target.append(row_batch(rows[start : start + 1000], schema))
            yield
    segments.add(name, target.size)
    for old in list(segments.closed):
        if old.number < cut and old.table in (FACTS, LEDGER):
            segments.delete(old)
            yield


def remove_leftovers(folder: Path, rank: int) -> None:
    """Delete what a killed process of this rank left half-written."""
    for entry in os.scandir(folder):
        name = FileName.parse(entry.name.removesuffix(TEMPORARY))
        if entry.name.endswith(TEMPORARY) and name is not None and name.rank == rank:
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()
