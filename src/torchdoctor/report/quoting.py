"""Lines of the user's source, as a page quotes them: only what the run ran, and only from where the user stands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchdoctor.findings import Place
from torchdoctor.opening import current_folder, open_plain
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean, clean_block

AROUND = 2
"""Lines that are quoted before and after the one that is meant."""
MOST_BYTES = 1_000_000
CHANGED = "changed since the run, so its lines are not quoted"


def describe_place(place: Place, run: Mapping[str, Any]) -> dict[str, str]:
    named = place.parameter or place.module
    at = f"{shorten(place.file, current_folder())}:{place.line}" if place.file else ""
    source, note = _quote(place, run)
    return {"at": clean(", ".join(part for part in (at, named) if part)), "source": source, "note": note}


def _quote(place: Place, run: Mapping[str, Any]) -> tuple[str, str]:
    """The lines around, if that file is there, is Python, and lies below the current folder: a run's word for where a
    file lies is not followed elsewhere. And a note where it is another file by now."""
    if not place.file or not place.line or place.line < 1 or not place.file.endswith(".py"):
        return "", ""
    try:
        path = Path(place.file).resolve()
        read = _read(path) if path.is_relative_to(current_folder().resolve()) else None
        if read is None:
            return "", ""
        body, written = read
        lines = body.decode("utf-8").splitlines()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
        return "", ""
    if not _is_as_it_ran(body, written, place.file, run):
        return "", CHANGED
    if place.line > len(lines):
        return "", ""
    first = max(0, place.line - 1 - AROUND)
    chosen = enumerate(lines[first : place.line + AROUND], start=first + 1)
    marked = (f"{'>' if number == place.line else ' '} {number:4}  {text}" for number, text in chosen)
    return clean_block("\n".join(marked)), ""


def _read(path: Path) -> tuple[bytes, float] | None:
    """What a plain file of a sensible size holds, and when it was written."""
    descriptor = open_plain(path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        body = file.read(MOST_BYTES + 1)
        return (body, os.fstat(descriptor).st_mtime) if len(body) <= MOST_BYTES else None


def _is_as_it_ran(body: bytes, written: float, file: str, run: Mapping[str, Any]) -> bool:
    """By its time; where that is later, the script itself by its digest. Unknown counts as the same."""
    started, known, argv = run.get("started"), run.get("script_sha256"), run.get("argv")
    if not isinstance(started, float) or written <= started:
        return True
    is_script = isinstance(argv, list) and bool(argv) and Path(str(argv[0])).name == Path(file).name
    return is_script and isinstance(known, str) and hashlib.sha256(body).hexdigest() == known
