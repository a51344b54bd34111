"""`# torchdoctor: allow NAME` on the line that a finding points to: the author has seen it, and means it.

Only Python files under the folders given are opened: a run's record may name any path, and leads no further.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from torchdoctor.findings import Finding, Place

COMMENT = re.compile(r"#\s*torchdoctor:\s*allow[\s:]+([\w\-, ]+)", re.IGNORECASE)
SOURCE_BYTES = 1_000_000
"""A source file larger than this is not opened to look for a comment."""


def find_permit(finding: Finding, folders: Iterable[str | Path]) -> Place | None:
    """The place of the comment that allows this finding, if any of its places has one."""
    roots = tuple(str(folder) for folder in folders)
    for place in finding.where:
        if place.file and place.line and {finding.name, finding.code.lower()} & _allowed(place.file, place.line, roots):
            return place
    return None


def _allowed(file: str, line: int, folders: tuple[str, ...]) -> set[str]:
    lines = _read(file, folders)
    match = COMMENT.search(lines[line - 1]) if 0 < line <= len(lines) else None
    if match is None:
        return set()
    return {word.lower().replace("_", "-") for word in re.split(r"[\s,]+", match.group(1)) if word}


def _read(file: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    for folder in folders:
        try:
            root = Path(folder).resolve()
            path = (root / file).resolve()
            if path.is_relative_to(root) and path.suffix == ".py" and path.stat().st_size <= SOURCE_BYTES:
                return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
        except (OSError, ValueError):
            continue
    return ()
