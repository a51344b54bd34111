"""run.json: what a run is and how it stands. Replaced as a whole, so that it is never half-written."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchdoctor import __version__
from torchdoctor.errors import NewerRunError, NotARunError, RunError
from torchdoctor.last_seen import DIED, RUNNING
from torchdoctor.opening import open_plain
from torchdoctor.store.documents import write_json
from torchdoctor.store.entries import clean_entries
from torchdoctor.store.files import replace_file
from torchdoctor.store.names import FORMAT, FileName, is_ours, list_names, run_file
from torchdoctor.store.process import identify, is_alive

MAX_BYTES = 16_000_000
STALE_SECONDS = 60.0
"""A run that says it runs and whose process cannot be asked has died if its files are older than that."""


def prepare_folder(folder: Path) -> None:
    """Make the folder, or see that it is one to write to. RunError if it holds something else."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list_names(folder)
    if names and not any(is_ours(name) for name in names):
        raise RunError(f"{folder} is not empty and holds no run; give the run a folder of its own with --out DIR")


def remove_empty(folder: Path, rank: int) -> None:
    """Take back a run that was begun and could not be recorded, unless the folder holds more than its beginning."""
    with contextlib.suppress(OSError):
        if list_names(folder) == [run_file(rank)]:
            (folder / run_file(rank)).unlink()
            folder.rmdir()


class RunInfo:
    """The contents of one run.json while its run is recorded. Not thread-safe: the recorder holds its lock."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self._path = path
        self._data = data
        self._dirty = True
        self._written = 0.0

    @classmethod
    def begin(cls, folder: Path, rank: int, session: int, info: Mapping[str, Any]) -> RunInfo:
        """A new run, or one more session of a run that is there."""
        path = folder / run_file(rank)
        now = time.time()
        earlier: dict[str, Any] = read_info(path) if path.exists() else {}
        sessions = earlier.get("sessions")
        data = {
            **earlier,
            **copy.deepcopy(dict(info)),
            "format": FORMAT,
            "torchdoctor": __version__,
            "name": folder.resolve().name,
            "started": earlier.get("started", now),
            "status": RUNNING,
            "rank": rank,
            "process": identify(),
            "sessions": [*(sessions if isinstance(sessions, list) else []), {"number": session, "started": now}],
        }
        for name in ("ended", "ending"):
            data.pop(name, None)
        return cls(path, data)

    def update(self, fields: Mapping[str, Any]) -> None:
        self._data.update(fields)
        self._dirty = True

    def end(self, status: str) -> None:
        now = time.time()
        self.update({"status": status, "ended": now})
        self._data["sessions"][-1].update(status=status, ended=now)

    def is_due(self, seconds: float) -> bool:
        return self._dirty or time.monotonic() - self._written >= seconds

    def snapshot(self, steps: int, dropped: Mapping[str, int], thinned: Mapping[str, Any]) -> dict[str, Any]:
        extra = {"steps": steps, "dropped": dict(dropped), "path": str(self._path.parent)}
        return {**self._data, **extra, **({"thinned": dict(thinned)} if thinned else {})}

    def render(self, steps: int, dropped: Mapping[str, int], thinned: Mapping[str, Any]) -> bytes:
        data = self.snapshot(steps, dropped, thinned)
        del data["path"]
        self._dirty = False
        try:
            return _to_json(data)
        except (TypeError, ValueError, RecursionError):
            return _to_json({name: value if _is_json(value) else str(value) for name, value in data.items()})

    def write(self, text: bytes) -> None:
        replace_file(self._path, text)
        self._written = time.monotonic()


def _to_json(data: Any) -> bytes:
    return write_json(data, indent=1, names=True).encode()


def _is_json(value: Any) -> bool:
    try:
        _to_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def read_info(path: Path) -> dict[str, Any]:
    """A run.json, checked. The folder's name stands in the messages: the file's own would not help."""
    folder = path.parent
    try:
        descriptor = open_plain(path)
        if descriptor is None:
            raise NotARunError(f"{path} is not a plain file; give a folder that `torchdoctor run` made")
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotARunError(_explain_missing(folder)) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}; check its permissions") from error
    try:
        if len(text) > MAX_BYTES:
            raise ValueError("too large")
        data = json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        raise RunError(
            f"{path} is damaged (cut off, or edited by hand); restore it from a copy or record the run again"
        ) from None
    is_run = isinstance(data, dict) and "torchdoctor" in data
    data = clean_entries(data) if is_run else {}
    version, author = data.get("format"), data.get("torchdoctor", "of an unknown version")
    if version is None:
        raise NotARunError(f"{path} was not written by torchdoctor; give a folder that `torchdoctor run` made")
    if version > FORMAT:
        raise NewerRunError(
            f"{folder} was written by torchdoctor {author} in format {version}, this one reads up to {FORMAT}; upgrade "
            "with: pip install -U torchdoctor"
        )
    return data


def _explain_missing(folder: Path) -> str:
    if any(FileName.parse(name) for name in list_names(folder)):
        return f"{folder} holds recorded data but no run.json; copy the whole folder, run.json included"
    return f"{folder} holds no run (no run.json); give a folder that `torchdoctor run` made"


def is_being_written(folder: Path, rank: int) -> bool:
    """Whether another process records into the folder as the same rank right now."""
    path = folder / run_file(rank)
    return path.exists() and read_status(path, read_info(path)) == RUNNING


def read_status(path: Path, data: Mapping[str, Any]) -> str:
    """The run's status; one that is "running" without a process has died."""
    status = data.get("status")
    if status != RUNNING:
        return status if isinstance(status, str) else "unknown"
    process = data.get("process")
    alive = is_alive(process) if isinstance(process, dict) else None
    if alive is None:
        try:
            alive = time.time() - path.stat().st_mtime < STALE_SECONDS
        except OSError:
            alive = False
    return RUNNING if alive else DIED
