"""The tables of a run: their schemas, and the limits of a recording. What the files are called is in names.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from torchdoctor.store.names import DIGEST, FACTS, FORMAT, HISTOGRAMS, LEDGER, SCALARS, SERIES, STATS

META = b"torchdoctor"
"""Key of our JSON in a schema's metadata."""

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

MAX_COLUMNS = 65_536
MAX_NAME = 4096
"""Characters of a signal's, key's, column's or subject's name."""


@dataclass(frozen=True)
class Limits:
    """When a recording flushes, drops, rolls and thins. The defaults are what users get; tests choose smaller ones."""

    queued_scalars: int = 200_000
    queued_bytes: int = 64_000_000
    """of matrices, and as much again of histograms"""
    queued_facts: int = 20_000
    flush_rows: int = 1000
    """matrix rows that wake the thread before its time"""
    segment_bytes: int = 64_000_000
    segment_batches: int = 1024
    thin_steps: int = 100_000
    """steps after which a digest is written, whatever the size"""
    series: int = 10_000
    groups: int = 48
    """distinct sets of columns and signals before the signals of a row are written over the union of columns"""


def _schema(table: str, fields: Iterable[tuple[str, pa.DataType]], **meta: Any) -> pa.Schema:
    text = json.dumps({"format": FORMAT, "table": table, **meta})
    return pa.schema(list(fields), metadata={META: text.encode()})


SERIES_SCHEMA = _schema(SERIES, [("series", pa.int32()), ("signal", pa.utf8()), ("key", pa.utf8())])
SCALARS_SCHEMA = _schema(SCALARS, [("step", pa.int64()), ("series", pa.int32()), ("value", pa.float64())])
_FACT_FIELDS = [
    ("step", pa.int64()),
    ("time", pa.float64()),
    ("kind", pa.utf8()),
    ("subject", pa.utf8()),
    ("data", pa.utf8()),
]
FACTS_SCHEMA = _schema(FACTS, _FACT_FIELDS)


def ledger_schema(first: int, last: int) -> pa.Schema:
    """Facts that stand for all before them; `first` and `last` are how many of a subject were kept."""
    return _schema(LEDGER, _FACT_FIELDS, first=first, last=last)


def stats_schema(columns: Sequence[str], signals: Sequence[str]) -> pa.Schema:
    vector = pa.list_(pa.float32(), len(columns))
    fields = [("row", pa.int64()), ("step", pa.int64()), *((name, vector) for name in signals)]
    return _schema(STATS, fields, columns=list(columns))


def histograms_schema(signal: str, columns: Sequence[str], bins: int) -> pa.Schema:
    counts = pa.list_(pa.float32(), len(columns) * bins)
    fields = [("row", pa.int64()), ("step", pa.int64()), ("counts", counts)]
    return _schema(HISTOGRAMS, fields, signal=signal, columns=list(columns), bins=bins)


def digest_schema(fields: Iterable[tuple[str, pa.DataType]], meta: Mapping[str, Any]) -> pa.Schema:
    return _schema(DIGEST, fields, **meta)


def read_meta(schema: pa.Schema) -> dict[str, Any]:
    """Our JSON from a schema; {} if there is none or it is damaged."""
    text = (schema.metadata or {}).get(META)
    if text is None:
        return {}
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def names_in(value: Any) -> tuple[str, ...] | None:
    """The value as column names, or None if it is not a list of a sane number of distinct names."""
    if not isinstance(value, list) or len(value) > MAX_COLUMNS or len(set(map(str, value))) != len(value):
        return None
    return tuple(value) if all(isinstance(v, str) and len(v) <= MAX_NAME for v in value) else None
