"""A folder of recorded runs: which run a path means, and which runs may go."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from torchdoctor.errors import NotARunError, UsageError
from torchdoctor.store.journal import read_notes
from torchdoctor.store.listing import RunEntry, list_runs

RECORD = "run.json"
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def is_run(path: Path) -> bool:
    return (path / RECORD).is_file()


def newest_first(folder: Path) -> list[RunEntry]:
    """The runs that lie directly in a folder; links are left out."""
    held = [entry for entry in list_runs(folder) if not entry.path.is_symlink()]
    return sorted(held, key=lambda e: (e.started or 0.0, e.name), reverse=True)


def written(run: RunEntry) -> float:
    """When it was last written, in seconds since 1970: its record is renewed every few seconds while it trains."""
    try:
        return (run.path / RECORD).stat().st_mtime
    except OSError:
        return run.started or 0.0


def resolve(path: Path) -> tuple[Path, str | None]:
    """The run at a path, or the newest in a folder of runs, then with a note that says so."""
    if not path.exists():
        raise NotARunError(f"there is nothing at {path}; torchdoctor runs lists the runs in ./torchdoctor-runs")
    if path.is_file() or is_run(path):
        return path, None
    held = newest_first(path)
    if not held:
        return path, None
    others = f"the newest of {len(held)} runs in {path}" if len(held) > 1 else f"the only run in {path}"
    return held[0].path, f"{held[0].path}, {others}"


def ancestors(path: Path, most: int = 20) -> list[RunEntry]:
    """Earlier runs of the same script in the same folder, oldest first."""
    held = newest_first(path.resolve().parent)
    mine = next((entry for entry in held if entry.path.resolve() == path.resolve()), None)
    if mine is None or mine.started is None or not mine.script:
        return []
    earlier = [e for e in held if e.script == mine.script and e.started is not None and e.started < mine.started]
    return earlier[:most][::-1]


def journal_of(path: Path) -> list[dict[str, str]]:
    """The notes of a run and its ancestors, oldest first."""
    held = [(entry.name, entry.path) for entry in ancestors(path)] + [("", path)]
    return [
        {"when": time.strftime("%Y-%m-%d %H:%M", time.localtime(n["when"])), "run": name, "text": n["text"]}
        for name, where in held
        for n in read_notes(where)
    ]


def select(held: Sequence[RunEntry], keep: int | None, older_than: timedelta | None, now: float) -> list[RunEntry]:
    """Of runs, newest first: those beyond the first `keep` and last written longer ago than the given age."""
    beyond = held[keep or 0 :]
    return [e for e in beyond if older_than is None or now - written(e) > older_than.total_seconds()]


def parse_age(text: str) -> timedelta:
    """30d, 12h, 90m or 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", text.strip().lower())
    if match is None:
        raise UsageError(f"an age is a number and m, h, d or w, such as 30d or 12h, not {text!r}")
    try:
        return timedelta(**{UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise UsageError(f"an age of {text} is longer than any run's; give one such as 30d") from None
