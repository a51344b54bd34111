"""Append-only Arrow streams of one process: opened when first needed, ended when large, never left half-written.

Every batch goes to the operating system in one piece and at once, so a killed process loses nothing that was appended.
If a write fails, the file is cut back to its last whole batch and the caller gets the OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchdoctor.opening import identity_of
from torchdoctor.store.files import write_all
from torchdoctor.store.format import END_OF_STREAM, Limits
from torchdoctor.store.names import TABLES, TEMPORARY, FileName, list_names

MAX_OPEN = 64
"""Files held open at once, far under the usual limit of 1024 that the user's program needs too."""
SMALL_BATCH = 256
"""Segments whose batches have fewer rows on average are worth compacting: reading costs 0.1 ms a batch."""

PIECE_BYTES = 4_000_000
"""Maintenance writes about this much before the thread looks after new data again: some 10 ms, 100 on a slow disk."""


CUT_SHORT = "another program has cut a file of the run short"
REPLACED = "the folder of the run was deleted, moved or replaced by another program"


class Segment:
    """One file that is being appended to."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.size = self.rows = self.batches = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._identity = identity_of(self._descriptor)
        try:
            self._write(schema.serialize())
        except OSError:
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def append(self, batch: pa.RecordBatch) -> None:
        self._write(batch.serialize())
        self.rows += batch.num_rows
        self.batches += 1

    def _write(self, data: Any) -> None:
        self._check()
        try:
            write_all(self._descriptor, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
                os.lseek(self._descriptor, self.size, os.SEEK_SET)
            raise
        self.size += len(memoryview(data).cast("B"))

    def close(self) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self._write(END_OF_STREAM)
        ours = self._is_ours()
        descriptor, self._descriptor = self._descriptor, -1
        if ours:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _is_ours(self) -> bool:
        return identity_of(self._descriptor) == self._identity

    def _check(self) -> None:
        """OSError where the script has closed the file, or another program has cut it short: a write after its end
        would leave a hole."""
        if not self._is_ours():
            raise OSError(errno.EBADF, "the script has closed this file, which it did not open", str(self.path))
        if os.fstat(self._descriptor).st_size < self.size:
            raise OSError(errno.EIO, CUT_SHORT, str(self.path))

    def close_synced(self) -> None:
        """Close, and be sure that it is on the disk."""
        self._write(END_OF_STREAM)
        os.fsync(self._descriptor)
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path, schema: pa.Schema) -> Iterator[Segment]:
    """A segment that takes the path's place, whole and synced, if the block ends well; else nothing happened."""
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    segment = Segment(temporary, schema)
    try:
        yield segment
        segment.close_synced()
        temporary.replace(path)
    except BaseException:
        segment.close()
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@dataclass
class Closed:
    """A segment that is complete."""

    name: FileName
    size: int
    small: bool
    """consists of small batches"""


class SegmentSet:
    """The files of one session: one open segment for each table and schema, and those that are complete."""

    def __init__(self, folder: Path, rank: int, limits: Limits) -> None:
        self.folder = folder
        self._identity = _identity_at(folder)
        self.limits = limits
        self.rank = rank
        self.pid = os.getpid()
        self._open: dict[tuple[str, Hashable], tuple[FileName, Segment]] = {}
        self._ended: list[Segment] = []
        self.closed: dict[FileName, Closed] = {}
        self.number = 0
        names = [n for n in map(FileName.parse, list_names(folder)) if n is not None and n.rank == rank]
        self.session = max((n.session for n in names), default=-1) + 1
        self.earlier = {n: (folder / str(n)).stat().st_size for n in names}
        """files of this rank's sessions before this one, and their sizes"""

    def next_name(self, table: str) -> FileName:
        name = FileName(table, self.rank, self.session, self.pid, self.number)
        self.number += 1
        return name

    def append(self, table: str, key: Hashable, schema: pa.Schema, batch: pa.RecordBatch) -> Closed | None:
        """Write a batch; the segment it went to, if that is complete now."""
        at = (table, key)
        if at not in self._open:
            if len(self._open) >= MAX_OPEN:
                self._end(next(iter(self._open)))
            self.check_folder()
            name = self.next_name(table)
            self._open[at] = (name, Segment(self.folder / str(name), schema))
        else:
            self._open[at] = self._open.pop(at)
        segment = self._open[at][1]
        segment.append(batch)
        full = segment.size >= self.limits.segment_bytes or segment.batches >= self.limits.segment_batches
        closed = self._end(at) if full else None
        self.close_ended()
        return closed

    def _end(self, at: tuple[str, Hashable]) -> Closed:
        name, segment = self._open.pop(at)
        small = segment.batches > 1 and segment.rows < SMALL_BATCH * segment.batches
        closed = self.closed[name] = Closed(name, segment.size, small)
        self._ended.append(segment)
        return closed

    def close_ended(self) -> None:
        while self._ended:
            self._ended.pop().close()

    def retire(self, tables: tuple[str, ...]) -> int:
        """End all open segments of these tables; the number below which they are complete. Touches no file."""
        for at in [at for at in self._open if at[0] in tables]:
            self._end(at)
        return self.number

    def abandon(self, table: str, key: Hashable) -> None:
        """Stop using a segment that could not be written to."""
        if (table, key) in self._open:
            self._end((table, key))

    def size(self, tables: tuple[str, ...], since: int = 0) -> int:
        """Bytes of these tables in segments numbered `since` or higher."""
        closed = sum(c.size for n, c in self.closed.items() if n.table in tables and n.number >= since)
        return closed + sum(s.size for n, s in self._open.values() if n.table in tables and n.number >= since)

    def earlier_size(self) -> int:
        return sum(self.earlier.values())

    def total(self) -> int:
        return self.size(TABLES)

    def add(self, name: FileName, size: int) -> None:
        """Count a complete file that was written beside the open segments."""
        self.closed[name] = Closed(name, size, small=False)

    def delete(self, name: FileName) -> None:
        self.closed.pop(name, None)
        with contextlib.suppress(OSError):
            (self.folder / str(name)).unlink()

    def close(self) -> None:
        for at in list(self._open):
            self._end(at)
        self.close_ended()

    def check_folder(self) -> None:
        """OSError where the path leads to another folder than the one that the recording began in."""
        if _identity_at(self.folder) != self._identity:
            raise OSError(errno.ESTALE, REPLACED, str(self.folder))

    def check_files(self) -> None:
        """OSError where a complete file is gone or shorter than it was written."""
        self.check_folder()
        for name, closed in self.closed.items():
            path = self.folder / str(name)
            if path.stat().st_size < closed.size:
                raise OSError(errno.EIO, CUT_SHORT, str(path))


def _identity_at(folder: Path) -> tuple[int, int] | None:
    """The folder itself that lies at a path: None where there is none, or a link in its place."""
    try:
        found = folder.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
