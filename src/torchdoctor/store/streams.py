"""Reading Arrow streams that may be torn, or made to harm: batch by batch, up to the first one that is not whole.

A file is opened only if it is a plain one (no link, pipe or device) and mapped, so that only what is asked for is
read. Only the types that the store writes are accepted, compressed batches are not (they can unfold to any size), and
every batch is checked against the bytes that are there before anything is made of it.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from torchdoctor.opening import open_plain
from torchdoctor.store.format import END_OF_STREAM

DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    NotImplementedError,
    MemoryError,
    struct.error,
)
"""What pyarrow raises on bytes that are not a stream of ours."""

_PLAIN = (pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.utf8())
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True)
class Stream:
    """What is whole of one Arrow stream."""

    schema: pa.Schema
    rows: int
    batches: int
    end: int
    """offset of the byte behind it"""
    closed: bool
    """ended on purpose, not torn"""


def map_file(path: Path) -> pa.Buffer | None:
    """The file's bytes, mapped; None if it is gone, empty or not a plain file."""
    try:
        descriptor = open_plain(path)
    except OSError:
        return None
    if descriptor is None:
        return None
    try:
        size = os.fstat(descriptor).st_size
        return pa.py_buffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)) if size else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def scan(data: pa.Buffer, start: int = 0) -> Stream | None:
    """Look over the stream that begins at `start` without reading its values; None if not even a schema is there.

    Messages are hopped over first and decoded afterwards by the stream reader: it checks what the functions for single
    messages take for granted.
    """
    ends, closed = _hop(data, start)
    if not ends:
        return None
    try:
        reader = pa.ipc.open_stream(data.slice(start, ends[-1] - start), options=_OPTIONS)
        schema = reader.schema
    except DAMAGE:
        return None
    if not all(_is_allowed(field.type) for field in schema):
        return None
    rows, whole = 0, 0
    try:
        for _ in ends[1:]:
            batch = reader.read_next_batch()
            if not _is_sound(batch):
                break
            rows, whole = rows + batch.num_rows, whole + 1
    except (*DAMAGE, StopIteration):
        pass
    closed = closed and whole == len(ends) - 1
    return Stream(schema, rows, whole, ends[whole] + (len(END_OF_STREAM) if closed else 0), closed)


def _hop(data: pa.Buffer, start: int) -> tuple[list[int], bool]:
    """Offsets behind the schema and each plain record batch, and whether the stream was ended on purpose."""
    source = pa.BufferReader(data)
    source.seek(start)
    ends: list[int] = []
    try:
        messages = pa.ipc.MessageReader.open_stream(source)
        if messages.read_next_message().type != "schema":
            return ends, False
        ends.append(source.tell())
        while True:
            message = messages.read_next_message()
            if message.type != "record batch" or _is_compressed(message):
                return ends, False
            ends.append(source.tell())
    except StopIteration:
        return ends, bool(ends) and source.tell() == ends[-1] + len(END_OF_STREAM)
    except DAMAGE:
        return ends, False


def read_batches(
    data: pa.Buffer, stream: Stream, fields: Sequence[int] | None = None, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """The whole batches of a scanned stream, only the named fields (ascending positions), without copying."""
    options = _OPTIONS if fields is None else pa.ipc.IpcReadOptions(use_threads=False, included_fields=list(fields))
    try:
        reader = pa.ipc.open_stream(data.slice(start, stream.end - start), options=options)
        for _ in range(stream.batches):
            batch = reader.read_next_batch()
            batch.validate()
            yield batch
    except (*DAMAGE, StopIteration):
        return


def _is_allowed(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return kind.value_type == pa.float32() or kind.value_type == pa.float64()
    return kind in _PLAIN


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether all its values are there; text is looked at in full."""
    batch.validate(full=any(field.type == pa.utf8() for field in batch.schema))
    return not any(column.null_count or _has_null_inside(column) for column in batch.columns)


def _has_null_inside(column: pa.Array) -> bool:
    return isinstance(column, pa.FixedSizeListArray) and column.values.null_count > 0


def _is_compressed(message: pa.Message) -> bool:
    """Whether a record batch's header names a compression.

    A flatbuffer's table starts with the distance back to its list of field offsets. In Arrow's Message.fbs field 2 of a
    message is its header, and field 3 of a record batch its compression.
    """
    bytes_ = message.metadata.to_pybytes()

    def field(table: int, index: int) -> int:
        offsets = table - struct.unpack_from("<i", bytes_, table)[0]
        if 4 + 2 * index >= struct.unpack_from("<H", bytes_, offsets)[0]:
            return 0
        distance = struct.unpack_from("<H", bytes_, offsets + 4 + 2 * index)[0]
        return table + distance if distance else 0

    root = struct.unpack_from("<I", bytes_, 0)[0]
    at = field(root, 2)
    header = at + struct.unpack_from("<I", bytes_, at)[0]
    return field(header, 3) != 0
