"""A folder of recorded runs: which runs it holds, which is the newest, which may go. Reads run.json and sizes only."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torchdoctor.errors import NotARunError, RunError, UsageError

RECORD = "run.json"
RECORD_BYTES = 16_000_000
"""A run.json larger than this is none of ours: it holds a git diff at most."""
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Entry:
    """A run as the shelf shows it."""

    path: Path
    info: Mapping[str, Any]
    changed: float
    """when anything in it was last written, in seconds since 1970"""
    bytes: int

    @property
    def status(self) -> str:
        return str(self.info.get("status") or "unknown")


def is_run(path: Path) -> bool:
    return (path / RECORD).is_file()


def entries(folder: Path) -> list[Entry]:
    """The runs that lie directly in a folder, newest first; links and what cannot be read are left out."""
    found = []
    try:
        children = list(folder.iterdir())
    except OSError:
        return []
    for child in children:
        if child.is_symlink() or not child.is_dir() or not is_run(child):
            continue
        found.append(entry(child))
    return sorted(found, key=lambda e: (e.changed, e.path.name), reverse=True)


def entry(path: Path) -> Entry:
    """One run; what its run.json does not say is missing, not an error."""
    stats = [p.lstat() for p in path.rglob("*") if not p.is_dir() or p.is_symlink()]
    return Entry(
        path=path,
        info=_read(path / RECORD),
        changed=max((s.st_mtime for s in stats), default=0.0),
        bytes=sum(s.st_size for s in stats),
    )


def resolve(path: Path) -> tuple[Path, str | None]:
    """The run at a path, or the newest in a folder of runs, then with a note that says so."""
    if not path.exists():
        raise NotARunError(f"there is nothing at {path}; torchdoctor runs lists the runs in ./torchdoctor-runs")
    if path.is_file() and path.name == RECORD:
        return path.parent, None
    if is_run(path) or not path.is_dir():
        return path, None
    held = entries(path)
    if not held:
        return path, None
    others = f", the newest of {len(held)} runs in {path}" if len(held) > 1 else f", the only run in {path}"
    return held[0].path, f"{held[0].path}{others}"


def select(held: Sequence[Entry], keep: int | None, older_than: timedelta | None, now: float) -> list[Entry]:
    """The runs that may go: beyond the newest `keep`, and older than the given age; both where both are given."""
    newest_first = sorted(held, key=lambda e: e.changed, reverse=True)
    beyond = newest_first[keep or 0 :]
    if older_than is None:
        return beyond
    return [e for e in beyond if now - e.changed > older_than.total_seconds()]


def remove(run: Entry) -> None:
    """Delete one run's folder, and nothing that a link in it points to."""
    if run.path.is_symlink() or not is_run(run.path):
        raise NotARunError(f"{run.path} is not a run folder, so it is left alone")
    if Path.cwd().resolve().is_relative_to(run.path.resolve()):
        raise RunError(f"{run.path} holds the current folder; change to another one first")
    try:
        shutil.rmtree(run.path)
    except OSError as error:
        raise RunError(f"cannot remove {run.path}: {error.strerror or error}") from error


def parse_age(text: str) -> timedelta:
    """30d, 12h, 90m or 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", text.strip().lower())
    if match is None:
        raise UsageError(f"an age is a number and m, h, d or w, such as 30d or 12h, not {text!r}")
    return timedelta(**{UNITS[match[2]]: float(match[1])})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > RECORD_BYTES:
            return {}
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
