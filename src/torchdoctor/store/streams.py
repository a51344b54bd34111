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

import numpy as np
import pyarrow as pa

from torchdoctor.store.blocks import Floats
from torchdoctor.store.files import open_plain

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, struct.error, OverflowError, NotImplementedError)
"""What pyarrow raises on bytes that are not a stream of ours."""

_PLAIN = (pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.utf8())
_BATCH = 3
"""Message header type of a record batch (Arrow's Message.fbs)."""


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
    """Look over the stream that begins at `start` without reading its values; None if not even a schema is there."""
    source = pa.BufferReader(data)
    source.seek(start)
    try:
        messages = pa.ipc.MessageReader.open_stream(source)
        schema = pa.ipc.read_schema(messages.read_next_message())
    except (*DAMAGE, StopIteration):
        return None
    if not all(_is_allowed(field.type) for field in schema):
        return None
    rows = batches = 0
    end, closed = source.tell(), False
    while True:
        try:
            message = messages.read_next_message()
            length = _batch_length(message)
        except StopIteration:
            closed = source.tell() == end + 8
            end = source.tell() if closed else end
            break
        except DAMAGE:
            break
        if length is None or not _is_whole(message, schema):
            break
        rows, batches, end = rows + length, batches + 1, source.tell()
    return Stream(schema, rows, batches, end, closed)


def read_batches(
    data: pa.Buffer, stream: Stream, fields: Sequence[int] | None = None, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """The whole batches of a scanned stream, only the named fields (ascending positions), without copying."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=None if fields is None else list(fields))
    try:
        reader = pa.ipc.open_stream(data.slice(start, stream.end - start), options=options)
        for _ in range(stream.batches):
            batch = reader.read_next_batch()
            batch.validate()
            yield batch
    except (*DAMAGE, StopIteration):
        return


def vectors(array: pa.Array) -> Floats:
    """A fixed-size list column as (rows, size), without copying."""
    size = array.type.list_size
    flat = array.values.to_numpy(zero_copy_only=True)
    return flat[array.offset * size : (array.offset + len(array)) * size].reshape(len(array), size)


def numbers(array: pa.Array) -> np.ndarray:
    """A column of numbers, without copying."""
    return array.to_numpy(zero_copy_only=True)


def _is_allowed(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return kind.value_type == pa.float32() or kind.value_type == pa.float64()
    return kind in _PLAIN


def _is_whole(message: pa.Message, schema: pa.Schema) -> bool:
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        text = any(field.type == pa.utf8() for field in schema)
        batch.validate(full=text)
        return not any(column.null_count or _has_null_inside(column) for column in batch.columns)
    except DAMAGE:
        return False


def _has_null_inside(column: pa.Array) -> bool:
    return isinstance(column, pa.FixedSizeListArray) and column.values.null_count > 0


def _batch_length(message: pa.Message) -> int | None:
    """Rows of a record batch, from its header; None if it is another kind of message, or compressed.

    A flatbuffer's table starts with the distance back to its list of field offsets (Arrow's Message.fbs: field 1 is the
    header's type, 2 the header; in a RecordBatch 0 is the length, 3 the compression).
    """
    bytes_ = message.metadata.to_pybytes()

    def field(table: int, index: int) -> int:
        offsets = table - struct.unpack_from("<i", bytes_, table)[0]
        if 4 + 2 * index >= struct.unpack_from("<H", bytes_, offsets)[0]:
            return 0
        distance = struct.unpack_from("<H", bytes_, offsets + 4 + 2 * index)[0]
        return table + distance if distance else 0

    root = struct.unpack_from("<I", bytes_, 0)[0]
    kind = field(root, 1)
    if not kind or bytes_[kind] != _BATCH:
        return None
    at = field(root, 2)
    header = at + struct.unpack_from("<I", bytes_, at)[0]
    if field(header, 3):
        return None
    length = field(header, 0)
    return struct.unpack_from("<q", bytes_, length)[0] if length else 0
