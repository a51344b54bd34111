"""Digests: the histories of all signals up to a moment, in place of the segments they were made from.

A digest is a file of Arrow streams one behind the other. A signal has up to four, named by their `part`: its
complete rows ("done"), the row being filled ("pending"), its first looks ("head") and its last ones ("tail").
The last stream has the part "end"; a digest without it is damaged and not used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchdoctor.opening import NO_LINK
from torchdoctor.run import HISTORY_ROWS
from torchdoctor.store.blocks import Block, join_blocks
from torchdoctor.store.columns import from_numpy, numbers, vectors
from torchdoctor.store.files import write_all
from torchdoctor.store.format import END_OF_STREAM, digest_schema, names_in, read_meta
from torchdoctor.store.history import State
from torchdoctor.store.names import TEMPORARY
from torchdoctor.store.segments import PIECE_BYTES
from torchdoctor.store.streams import Stream, map_file, read_batches, scan

DONE, PENDING, HEAD, TAIL, END = "done", "pending", "head", "tail", "end"
MAX_LEVEL = 40
"""2**40 looks a row: more than a run can have."""
MAX_STREAMS = 100_000
_FIELDS = ["step", "mean", "low", "high", "counts"]

Name = tuple[str, str]


def write_digest(path: Path, states: Mapping[Name, State], steps: tuple[int, int]) -> Generator[None, None, None]:
    """Write it in pieces; it is there, whole, when the iterator ends, and not at all before."""
    temporary = path.with_name(path.name + TEMPORARY)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o644)
    try:
        waiting = 0
        for name, state in states.items():
            for piece in _streams_of(name, state):
                write_all(descriptor, piece)
            waiting += state.nbytes
            if waiting >= PIECE_BYTES:
                os.fsync(descriptor)
                waiting = 0
                yield
        meta = {"part": END, "signals": len(states), "first_step": steps[0], "last_step": steps[1]}
        write_all(descriptor, digest_schema([], meta).serialize())
        write_all(descriptor, END_OF_STREAM)
        os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _streams_of(name: Name, state: State) -> Iterator[Any]:
    signal, key = name
    meta = {
        "signal": signal,
        "key": key,
        "columns": None if state.columns is None else list(state.columns),
        "rows": state.rows,
        "looks": state.looks,
        "level": state.level,
    }
    yield from _stream(state.done, state.level, {"part": DONE, **meta})
    for part, blocks in ((HEAD, state.head), (TAIL, state.tail)):
        yield from _stream(blocks, 0, {"part": part, "signal": signal, "key": key})
    for level, block in enumerate(state.pending):
        if block is not None:
            yield from _stream([block], level, {"part": PENDING, "signal": signal, "key": key, "level": level})


def _stream(blocks: Sequence[Block], level: int, meta: Mapping[str, Any]) -> Iterator[Any]:
    blocks = [b for b in blocks if len(b)]
    if not blocks:
        if meta["part"] == DONE:
            yield digest_schema([], meta).serialize()
            yield END_OF_STREAM
        return
    block = join_blocks(blocks, level)
    arrays = {"mean": block.mean, "low": block.low, "high": block.high, "counts": block.counts}
    held = {name: a for name, a in arrays.items() if a is not None}
    kind = pa.from_numpy_dtype(block.mean.dtype)
    vector = pa.list_(kind, block.width)
    schema = digest_schema([("step", pa.int64()), *((name, vector) for name in held)], meta)
    columns = [from_numpy(np.ascontiguousarray(block.steps))]
    for a in held.values():
        flat = np.ascontiguousarray(a, block.mean.dtype).reshape(-1)
        columns.append(pa.FixedSizeListArray.from_arrays(from_numpy(flat), block.width))
    yield schema.serialize()
    yield pa.record_batch(columns, schema=schema).serialize()
    yield END_OF_STREAM


@dataclass
class Digest:
    """A digest's table of contents; values are read signal by signal."""

    path: Path
    first_step: int
    last_step: int
    parts: dict[Name, list[tuple[int, Stream, dict[str, Any]]]]
    """offset, stream and metadata of each of a signal's streams"""

    @classmethod
    def open(cls, path: Path) -> Digest | None:
        """None if it is missing or damaged."""
        data = map_file(path)
        if data is None:
            return None
        parts: dict[Name, list[tuple[int, Stream, dict[str, Any]]]] = {}
        offset = 0
        for _ in range(MAX_STREAMS):
            stream = scan(data, offset)
            if stream is None or not stream.closed:
                return None
            meta = read_meta(stream.schema)
            if meta.get("part") == END:
                steps = (meta.get("first_step"), meta.get("last_step"))
                whole = meta.get("signals") == len(parts) and all(isinstance(s, int) for s in steps)
                return cls(path, *steps, parts) if whole else None  # type: ignore[arg-type]
            name = (meta.get("signal"), meta.get("key"))
            if not all(isinstance(n, str) for n in name):
                return None
            parts.setdefault(name, []).append((offset, stream, meta))  # type: ignore[arg-type]
            offset = stream.end
        return None

    def state(self, name: Name) -> State | None:
        """The signal's history; None if it is not here or makes no sense. FileNotFoundError if the digest is gone."""
        streams = self.parts.get(name)
        if not streams:
            return None
        data = map_file(self.path)
        if data is None:
            raise FileNotFoundError(self.path)
        meta = streams[0][2]
        columns = None if meta.get("columns") is None else names_in(meta["columns"])
        if columns is None and meta.get("columns") is not None:
            return None
        numbers_ = [meta.get(k) for k in ("rows", "looks", "level")]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers_):
            return None
        rows, looks, level = (int(n) for n in numbers_ if n is not None)
        if level > MAX_LEVEL or not 0 < rows <= HISTORY_ROWS or looks >= 2**62:
            return None
        width = 1 if columns is None else len(columns)
        found: dict[str, list[Block]] = {DONE: [], HEAD: [], TAIL: []}
        pending: list[Block | None] = [None] * level
        for offset, stream, about in streams:
            part = about.get("part")
            block = _read_block(data, offset, stream, width, columns is None)
            if block is None:
                continue
            if part == PENDING:
                at = about.get("level")
                if isinstance(at, int) and 0 <= at < level and len(block) == 1:
                    pending[at] = block
            elif part in found:
                found[part].append(block)
        done = sum(map(len, found[DONE]))
        waiting = sum(1 << k for k, p in enumerate(pending) if p is not None)
        if (done << level) + waiting != looks:
            return None
        return State(
            columns, rows, looks, level, tuple(found[DONE]), tuple(pending), tuple(found[HEAD]), tuple(found[TAIL])
        )


def _read_block(data: pa.Buffer, offset: int, stream: Stream, width: int, scalar: bool) -> Block | None:
    """One stream as a block; None if it is empty or not of the signal's width and type."""
    names = stream.schema.names
    if names not in (_FIELDS[:2], _FIELDS[:4], _FIELDS):
        return None
    value = pa.float64() if scalar else pa.float32()
    if stream.schema.field(0).type != pa.int64():
        return None
    kinds = [stream.schema.field(i).type for i in range(1, len(names))]
    if any(not pa.types.is_fixed_size_list(k) or k.value_type != value or k.list_size > width for k in kinds):
        return None
    blocks = [
        Block(numbers(b.column(0)), *(vectors(b.column(i)) for i in range(1, len(names))))
        for b in read_batches(data, stream, start=offset)
    ]
    blocks = [b for b in blocks if len(b)]
    return join_blocks(blocks, 0) if blocks else None
