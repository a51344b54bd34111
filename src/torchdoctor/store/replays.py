"""What came of replays of a run's captures, beside its record: a line of JSON each, the newest of them kept.

Reading trusts nothing: a line that is not exactly what `keep_replay` writes is left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torchdoctor.facts import BirthFact
from torchdoctor.store.files import open_plain, replace_file
from torchdoctor.store.ledger import fits, read_fact

REPLAYS = "replays.jsonl"
MOST = 20
"""Replays of a run that are kept, the newest of them."""
MAX_LINE = 64_000
"""Bytes of one; a longer one loses its way from the birth to the loss, which may have thousands of links."""
MAX_BYTES = 2 * MOST * MAX_LINE
LONGEST = 1000
"""Characters of any one text in it."""
MOST_LISTED = 100


@dataclass(frozen=True)
class Replayed:
    """One replay, as `torchdoctor replay` told it."""

    when: float
    step: int
    capture: str
    """the folder's name"""
    command: list[str]
    """the script and its arguments, without secrets"""
    change: str = ""
    """what was changed, in words"""
    gone: bool = False
    """under the change the step did not fail"""
    passed: int | None = None
    failed_at: int | None = None
    failed_step: int | None = None
    from_step: int | None = None
    from_start: bool = False
    raised: str | None = None
    reason: str | None = None
    """why it did not fail again"""
    compared: bool = False
    """the run itself had found the birth"""
    differs: list[str] = field(default_factory=list)
    """what was not the same to the bit"""
    losses: int = 0
    """steps before it whose losses were compared"""
    apart: float = 0.0
    """by how much those differ at most, over the larger of the two"""
    changed_sources: list[str] = field(default_factory=list)
    diagnosis: str = ""
    """name of what comes first once record and birth are read together"""
    diagnosis_title: str = ""
    birth: BirthFact | None = None


def keep_replay(folder: Path, replayed: Replayed) -> None:
    """Add it to those of the run. OSError where the folder cannot be written to."""
    line = _render(replayed)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(folder / REPLAYS, flags, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)
    lines = _lines(folder)
    if len(lines) > 2 * MOST:
        replace_file(folder / REPLAYS, b"".join(each + b"\n" for each in lines[-MOST:]))


def read_replays(folder: Path) -> list[Replayed]:
    """The newest first."""
    found = [replayed for line in _lines(folder) if (replayed := _read(line)) is not None]
    return found[::-1][:MOST]


def _render(replayed: Replayed) -> bytes:
    data = _shortened(dataclasses.asdict(replayed))
    line = json.dumps(data, separators=(",", ":")).encode()
    if len(line) >= MAX_LINE and data["birth"]:
        data["birth"] |= {"chain": [], "inputs": [], "shapes": []}
        line = json.dumps(data, separators=(",", ":")).encode()
    return line + b"\n"


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, list | tuple):
        return [_shortened(v) for v in value[:MOST_LISTED]]
    return {k: _shortened(v) for k, v in value.items()} if isinstance(value, dict) else value


def _lines(folder: Path) -> list[bytes]:
    try:
        descriptor = open_plain(folder / REPLAYS)
    except OSError:
        return []
    if descriptor is None:
        return []
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - MAX_BYTES))
        return [line for line in file.read(MAX_BYTES).splitlines() if line and len(line) <= MAX_LINE]


def _read(line: bytes) -> Replayed | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    birth = _birth(data.pop("birth", None))
    hints = _hints()
    if any(name in data and not fits(data[name], hint) for name, hint in hints.items()):
        return None
    try:
        return Replayed(**_shortened({k: v for k, v in data.items() if k in hints}), birth=birth)
    except TypeError:
        return None


def _birth(data: Any) -> BirthFact | None:
    if not isinstance(data, Mapping):
        return None
    found = read_fact(BirthFact.kind, json.dumps(data))
    return found if isinstance(found, BirthFact) else None


@cache
def _hints() -> dict[str, Any]:
    return {name: hint for name, hint in typing.get_type_hints(Replayed).items() if name != "birth"}
