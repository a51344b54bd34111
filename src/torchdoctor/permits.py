"""`# torchdoctor: allow NAME` on the line that a finding points to: the author has seen it, and means it.

Only Python files under the folders given are opened: a run's record may name any path, and leads no further.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchdoctor.findings import Finding, Place
from torchdoctor.fixes.source import read_lines

COMMENT = re.compile(r"#\s*torchdoctor:\s*allow[\s:]+([\w\-, ]+)", re.IGNORECASE)


def find_permit(finding: Finding, folders: Iterable[str | Path]) -> Place | None:
    """The place of the comment that allows this finding, if any of its places has one."""
    roots = tuple(str(folder) for folder in folders)
    for place in finding.where:
        if place.file and place.line and {finding.name, finding.code.lower()} & _allowed(place.file, place.line, roots):
            return place
    return None


@dataclass(frozen=True)
class Stray:
    """A word in such a comment that is no diagnosis, and the one that may have been meant."""

    file: str
    line: int
    word: str
    meant: str


def find_strays(
    findings: Iterable[Finding], folders: Iterable[str | Path], read_rules: Callable[[], Mapping[str, str]]
) -> list[Stray]:
    """Misspelled names in comments on the lines that findings point to; a reason may follow a right name.

    `read_rules`: gives the code of every diagnosis by its name; it takes a while, and is called where there are such
    comments only."""
    roots = tuple(str(folder) for folder in folders)
    places = dict.fromkeys((p.file, p.line) for f in findings for p in f.where if p.file and p.line)
    allowed = {(file, line): _allowed(file, line, roots) for file, line in places if file and line}
    if not any(allowed.values()):
        return []
    rules = read_rules()
    known = {*rules, *(code.lower() for code in rules.values())}
    strays = []
    for (file, line), words in allowed.items():
        close = {w: difflib.get_close_matches(w, rules, n=1, cutoff=0.7) for w in words - known}
        wrong = [w for w, near in close.items() if near] or ([] if words & known else sorted(close, key=len)[-1:])
        strays += [
            Stray(str(file), int(line or 0), w, f"; did you mean {close[w][0]}?" if close[w] else "") for w in wrong
        ]
    return strays


def _allowed(file: str, line: int, folders: tuple[str, ...]) -> set[str]:
    lines = read_lines(file, folders)
    match = COMMENT.search(lines[line - 1]) if 0 < line <= len(lines) else None
    if match is None:
        return set()
    return {word.lower().replace("_", "-") for word in re.split(r"[\s,]+", match.group(1)) if word}
