"""What came of replays of a run's captures, beside its record: a line of JSON each, the newest of them kept.

Reading trusts nothing: a line that is not exactly what `keep_replay` writes is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchdoctor.facts import BirthFact
from torchdoctor.opening import NO_LINK, open_plain
from torchdoctor.store.documents import write_json
from torchdoctor.store.files import replace_file, write_all
from torchdoctor.store.ledger import read_fact
from torchdoctor.store.trusted import build, shortened

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

REPLAYS = "replays.jsonl"
MOST = 20
"""Replays of a run that are kept, the newest of them."""
MAX_LINE = 64_000
"""Bytes of one; a longer one loses its way from the birth to the loss, which may have thousands of links, and then the
ends of its texts and lists."""
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
    with _locked(folder):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK
        handle = os.open(folder / REPLAYS, flags, 0o644)
        try:
            write_all(handle, line)
        finally:
            os.close(handle)
        lines = _lines(folder)
        if len(lines) > 2 * MOST:
            replace_file(folder / REPLAYS, b"".join(each + b"\n" for each in lines[-MOST:]), shared=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One replay at a time: what another adds while this one trims would be lost. The folder itself is locked, since
    the file is replaced; where that cannot be, the last one wins."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_replays(folder: Path) -> list[Replayed]:
    """The newest first."""
    found = [replayed for line in _lines(folder) if (replayed := _read(line)) is not None]
    return found[::-1][:MOST]


def _render(replayed: Replayed) -> bytes:
    """Shortened until it is read back: first the way to the loss goes, then texts and lists are halved."""
    data, longest, most = dataclasses.asdict(replayed), LONGEST, MOST_LISTED
    line = _encode(data, longest, most)
    if len(line) > MAX_LINE and data["birth"]:
        data["birth"] |= {"chain": [], "inputs": [], "shapes": []}
        line = _encode(data, longest, most)
    while len(line) > MAX_LINE and longest:
        longest, most = longest // 2, max(1, most // 2)
        line = _encode(data, longest, most)
    return line + b"\n"


def _encode(data: dict[str, Any], longest: int, most: int) -> bytes:
    return write_json(shortened(data, longest, most)).encode()


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
    found = build(Replayed, data, LONGEST, MOST_LISTED, beside=("birth",))
    return dataclasses.replace(found, birth=birth) if found is not None else None


def _birth(data: Any) -> BirthFact | None:
    if not isinstance(data, Mapping):
        return None
    found = read_fact(BirthFact.kind, json.dumps(data))
    return found if isinstance(found, BirthFact) else None
