"""Opening a capture that a stranger may have made: everything is checked before anything of its size is allocated.

No code runs, no name in it is imported, no path in it is followed, no link is opened. A capture that is not exactly
what `write_capture` makes is refused with a CaptureError.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.errors import CaptureError
from torchdoctor.opening import open_plain
from torchdoctor.store.captures import CAPTURE_FORMAT, DOCUMENT, MAX_DOCUMENT, TENSORS

_BY_SIZE = {8: "F64 I64 U64 C64", 4: "F32 I32 U32", 2: "F16 BF16 I16 U16", 1: "F8_E4M3 F8_E5M2 I8 U8 BOOL"}
ITEM_BYTES = {code: size for size, codes in _BY_SIZE.items() for code in codes.split()}
"""The element types a capture may hold, in safetensors' words."""

TENSOR_NAME = re.compile(r"(?:batch|parameter|buffer|optimizer|scaler|random)/[\w.:#'+/-]{1,256}", re.ASCII)
MAX_HEADER = 32_000_000
"""Bytes; 100,000 tensors with long names take about 15 MB."""
MAX_BYTES = 64 << 30
"""Of a tensors.safetensors, unless the caller says otherwise: far above the limit of what is written by default."""
MAX_DIMENSIONS = 64
MAX_EXTENT = 1 << 48
MAX_DEPTH = 64
MAX_LEAD = 1 << 16
NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

TENSOR, ARRAY, VALUE, FLOAT = "tensor", "array", "value", "float"
LIST, TUPLE, DICT, FIELDS, LEFT_OUT = "list", "tuple", "dict", "fields", "left_out"
"""Kinds of nodes in a structure; `fields` are named tuples and dataclasses."""

_WHOLE = {"step": int, "taken_at_step": int, "rank": int, "reason": str, "when": float}
_TABLES = {"parameters": dict, "buffers": dict, "random": dict, "batches": list, "optimizers": list, "scalers": list}
_LISTS = {"losses": list, "sources": dict, "batch_source": str, "steps": list}
_OPTIONAL = _LISTS | {"threads": int, "processes": int, "lead": int}


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Raw:
    """A tensor's bytes and how to read them; numpy knows no bfloat16, so they stay bytes here."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class Capture:
    """An open capture: `document` is its checked JSON, `tensors` what the file holds, `read` gets one of them."""

    def __init__(
        self, path: Path, document: dict[str, Any], tensors: dict[str, TensorEntry], file: int, begin: int
    ) -> None:
        self.path = path
        self.document = document
        self.tensors = tensors
        self.rebuilt: dict[str, Any] = {}
        """tensors that were read as part of a structure: one that many places name is read once"""
        self._file = file
        self._begin = begin

    @property
    def step(self) -> int:
        return int(self.document["step"])

    @property
    def reason(self) -> str:
        return str(self.document["reason"])

    def read(self, name: str) -> Raw:
        entry = self._entry(name)
        data = np.empty(entry.stop - entry.start, np.uint8)
        self._fill(memoryview(data), entry.start)
        return self._checked(name, Raw(entry.dtype, entry.shape, data))

    def read_rows(self, name: str, rows: Sequence[int]) -> Raw:
        """Some entries along the first dimension, and nothing else of the tensor. IndexError if one is not there."""
        entry = self._entry(name)
        count = entry.shape[0] if entry.shape else 0
        if not all(0 <= row < count for row in rows):
            raise IndexError(f"{name} has {count} rows")
        size = (entry.stop - entry.start) // max(1, count)
        data = np.empty((len(rows), size), np.uint8)
        for at, row in enumerate(rows):
            self._fill(memoryview(data[at]), entry.start + row * size)
        return self._checked(name, Raw(entry.dtype, (len(rows), *entry.shape[1:]), data.reshape(-1)))

    def _entry(self, name: str) -> TensorEntry:
        entry = self.tensors.get(name)
        if entry is None:
            raise CaptureError(f"{self.path} holds no tensor {name!r}; it was left out or never was there")
        return entry

    def _fill(self, view: memoryview, start: int) -> None:
        done = 0
        while done < len(view):
            got = os.preadv(self._file, [view[done:]], self._begin + start + done)
            if got == 0:
                raise CaptureError(f"{self.path / TENSORS} became shorter while it was read; copy it again")
            done += got

    def _checked(self, name: str, raw: Raw) -> Raw:
        if raw.dtype == "BOOL" and raw.data.size and int(raw.data.max()) > 1:
            raise CaptureError(
                f"{self.path / TENSORS}: {name} holds bytes that are neither true nor false; it is damaged"
            )
        return raw

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_capture(path: str | os.PathLike[str], limit_bytes: int = MAX_BYTES) -> Capture:
    """Check a capture and open it. CaptureError says what is wrong with it and what to do."""
    folder = Path(path)
    if folder.is_symlink():
        raise CaptureError(f"{folder} is a link; open the capture at the place it leads to, if you trust it")
    if not folder.is_dir():
        raise CaptureError(f"there is no capture at {folder}; the captures of a run are the folders in RUN/captures")
    document = _read_document(folder / DOCUMENT)
    file = _open(folder / TENSORS)
    try:
        begin, tensors = _read_header(folder / TENSORS, file, limit_bytes)
        _check_document(folder / DOCUMENT, document, tensors)
    except BaseException:
        os.close(file)
        raise
    return Capture(folder, document, tensors, file, begin)


def _open(path: Path) -> int:
    try:
        file = open_plain(path)
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}; copy the whole capture again") from error
    if file is None:
        raise CaptureError(f"{path} is no plain file; such a capture is not opened")
    return file


def _parse(data: bytes, where: Path) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{where} is damaged ({str(error)[:200]}); copy the whole capture again") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


# -- tensors.safetensors --------------------------------------------------------------


def _read_header(path: Path, file: int, limit: int) -> tuple[int, dict[str, TensorEntry]]:
    size = os.fstat(file).st_size
    if size > limit:
        raise CaptureError(f"{path} has {size:,} bytes, more than the {limit:,} that are opened; raise that limit")
    prefix = os.pread(file, 8, 0)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > MAX_HEADER or 8 + length > size:
        raise CaptureError(f"{path} is cut off or no safetensors file; copy the whole capture again")
    data = os.pread(file, length, 8)
    header = _parse(data, path)
    if len(data) < length or not isinstance(header, dict):
        raise CaptureError(f"{path} is cut off or no safetensors file; copy the whole capture again")
    header.pop("__metadata__", None)
    tensors = {name: _entry(path, name, value) for name, value in header.items()}
    _check_layout(path, tensors.values(), size - 8 - length)
    return 8 + length, tensors


def _entry(path: Path, name: str, value: Any) -> TensorEntry:
    if not TENSOR_NAME.fullmatch(name):
        raise CaptureError(f"{path} holds a tensor with a name no capture has ({name[:80]!r}); it is not opened")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CaptureError(f"{path}: the entry of {name} is damaged; copy the whole capture again")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise CaptureError(f"{path}: {name} has elements of an unknown type ({str(dtype)[:40]!r}); it is not opened")
    if not (_extents(shape) and len(shape) <= MAX_DIMENSIONS and _extents(offsets) and len(offsets) == 2):
        raise CaptureError(f"{path}: the shape or place of {name} is damaged; copy the whole capture again")
    entry = TensorEntry(dtype, tuple(shape), *offsets)
    if math.prod(shape) * ITEM_BYTES[dtype] != entry.stop - entry.start:
        raise CaptureError(f"{path}: {name} does not fill its place; copy the whole capture again")
    return entry


def _extents(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= MAX_EXTENT for v in value)


def _check_layout(path: Path, entries: Iterable[TensorEntry], size: int) -> None:
    """One tensor after the other, without gap or overlap, to the end of the file."""
    end = 0
    for entry in sorted(entries, key=lambda e: (e.start, e.stop)):
        if entry.start != end:
            raise CaptureError(f"{path}: tensors overlap or leave gaps; copy the whole capture again")
        end = entry.stop
    if end != size:
        raise CaptureError(
            f"{path} should have {end:,} bytes of tensors and has {size:,}; copy the whole capture again"
        )


# -- capture.json ----------------------------------------------------------------------


def _read_document(path: Path) -> dict[str, Any]:
    file = _open(path)
    try:
        size = os.fstat(file).st_size
        if size > MAX_DOCUMENT:
            raise CaptureError(f"{path} has {size:,} bytes, more than any capture's ({MAX_DOCUMENT:,}); not opened")
        with os.fdopen(os.dup(file), "rb") as stream:
            document = _parse(stream.read(MAX_DOCUMENT), path)
    finally:
        os.close(file)
    if not isinstance(document, dict):
        raise CaptureError(f"{path} is not the JSON of a capture; copy the whole capture again")
    return document


def _check_document(path: Path, document: dict[str, Any], tensors: dict[str, TensorEntry]) -> None:
    version = document.get("format")
    if type(version) is not int:
        raise CaptureError(f"{path} is not the JSON of a capture; copy the whole capture again")
    if version > CAPTURE_FORMAT:
        raise CaptureError(f"{path} was written by a newer torchdoctor (format {version}); update torchdoctor")
    for key, kind in {**_WHOLE, **_TABLES}.items():
        value = document.get(key)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise CaptureError(f"{path}: {key!r} is missing or damaged; copy the whole capture again")
    for key, kind in _OPTIONAL.items():
        if key in document and type(document[key]) is not kind:
            raise CaptureError(f"{path}: {key!r} is damaged; copy the whole capture again")
    if not 0 <= document.get("lead", 0) <= MAX_LEAD:
        raise CaptureError(f"{path}: 'lead' is damaged; copy the whole capture again")
    if document["step"] < 0 or document["rank"] < 0:
        raise CaptureError(f"{path}: step and rank are counted from 0; it is damaged")
    check = _StructureCheck(path, tensors)
    for key in ("parameters", "buffers"):
        for name in document[key].values():
            check.reference(name)
    for structure in document["batches"]:
        check.node(structure)
    check.steps(document.get("steps", []), document["step"])
    for table in ("optimizers", "scalers"):
        for item in document[table]:
            check.record(item)
    check.random(document["random"])


class _StructureCheck:
    """Walks the nodes of a structure; whatever reads them afterwards may rely on their form."""

    def __init__(self, path: Path, tensors: dict[str, TensorEntry]) -> None:
        self._path = path
        self._tensors = tensors

    def reference(self, name: Any) -> None:
        if not isinstance(name, str) or name not in self._tensors:
            raise CaptureError(f"{self._path} names a tensor that is not there ({str(name)[:80]!r}); it is damaged")

    def record(self, item: Any) -> None:
        """An optimizer or scaler: a name for its type, and nodes."""
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise self._damaged("an optimizer or scaler")
        state = item.get("state", {})
        if not isinstance(state, dict) or not all(index.isdecimal() and len(index) < 10 for index in state):
            raise self._damaged("an optimizer's state")
        for node in (*state.values(), item.get("groups", _EMPTY), item.get("values", _EMPTY)):
            self.node(node)

    def random(self, states: dict[str, Any]) -> None:
        words = [name for key in ("python", "numpy") for name in _values(states.get(key), "words")]
        for name in [states.get("torch"), *_values(states.get("cuda")), *words]:
            if name is not None:
                self.reference(name)
        if not all(index.isdecimal() and len(index) < 6 for index in states.get("cuda") or {}):
            raise self._damaged("a random state")

    def steps(self, steps: list[Any], last: int) -> None:
        """One after the other up to the last: what each of them began with."""
        if not all(isinstance(step, dict) for step in steps):
            raise self._damaged("the list of steps")
        numbers = [step.get("step") for step in steps]
        expected = list(range(last - len(steps) + 1, last + 1))
        if not all(type(n) is int and n >= 0 for n in numbers) or numbers != expected:
            raise self._damaged("the list of steps")
        for step in steps:
            batches, states, groups = step.get("batches"), step.get("batch_random"), step.get("groups")
            if not (isinstance(batches, list) and isinstance(states, list) and isinstance(groups, dict)):
                raise self._damaged("a step")
            for random in (step.get("random"), *states):
                if not isinstance(random, dict) or len(states) != len(batches):
                    raise self._damaged("a random state")
                self.random(random)
            for node in (*batches, *groups.values()):
                self.node(node)

    def node(self, node: Any, depth: int = 0) -> None:
        if not isinstance(node, dict) or depth > MAX_DEPTH:
            raise self._damaged("a structure")
        kind = node.get("kind")
        if kind in (TENSOR, ARRAY):
            self.reference(node.get("name"))
        elif kind == VALUE:
            if not isinstance(node.get("value"), str | int | float | None):
                raise self._damaged("a value")
        elif kind == FLOAT:
            if not isinstance(node.get("value"), str) or node["value"] not in NONFINITE:
                raise self._damaged("a number")
        elif kind == LEFT_OUT:
            if not isinstance(node.get("type"), str):
                raise self._damaged("something left out")
        elif kind in (LIST, TUPLE, DICT, FIELDS):
            self._items(node, kind, depth)
        else:
            raise self._damaged(f"a structure of an unknown kind ({str(kind)[:40]!r})")

    def _items(self, node: dict[str, Any], kind: str, depth: int) -> None:
        items = node.get("items")
        if not isinstance(items, list) or not isinstance(node.get("type", ""), str):
            raise self._damaged("a list")
        if kind in (DICT, FIELDS):
            keys = node.get("keys")
            allowed = str if kind == FIELDS else str | int | float | None
            if not isinstance(keys, list) or len(keys) != len(items) or not all(isinstance(k, allowed) for k in keys):
                raise self._damaged("the keys of a dict")
        for item in items:
            self.node(item, depth + 1)

    def _damaged(self, what: str) -> CaptureError:
        return CaptureError(f"{self._path}: {what} in it is damaged; copy the whole capture again")


_EMPTY = {"kind": LIST, "items": []}


def _values(table: Any, key: str | None = None) -> list[Any]:
    """The table's values, or that one of them; something that is no tensor's name where it is no table."""
    if table is None:
        return []
    if not isinstance(table, dict):
        return [False]
    return list(table.values()) if key is None else [table.get(key, False)]
