"""The list of runs: a line each, filled in as they are examined."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from torchdoctor.last_seen import RUNNING
from torchdoctor.report.text import clean, cut_middle
from torchdoctor.store.listing import RunEntry
from torchdoctor.ui.library import Library, key_of
from torchdoctor.ui.templates import render

ARGUMENTS_SHOWN, ARGUMENTS_WHOLE = 64, 2000
"""Letters of a run's arguments in its line, and in what is shown on pointing at them and searched."""


@dataclass(frozen=True)
class Overview:
    html: str
    count: int
    pending: bool
    """some are being examined, or still train"""

    @property
    def stamp(self) -> str:
        return hashlib.blake2b(self.html.encode(), digest_size=9).hexdigest()


def survey(library: Library) -> Overview:
    rows, pending = [], False
    for entry in library.entries():
        row, due = _row(entry, library)
        rows.append(row)
        pending = pending or due or row["running"]
    return Overview(render("rows.html.j2", rows=rows), len(rows), pending)


def _row(entry: RunEntry, library: Library) -> tuple[dict[str, Any], bool]:
    made, due = library.glance(entry)
    seen = made.value if made else None
    arguments = clean(cut_middle(entry.arguments, ARGUMENTS_WHOLE))
    begun = time.localtime(entry.started) if entry.started else None
    row = {
        "name": key_of(entry.name),
        "shown": clean(entry.name) or "(a name of signs that are not shown)",
        "arguments": cut_middle(arguments, ARGUMENTS_SHOWN),
        "arguments_whole": arguments,
        "severity": seen.severity if seen else "waiting",
        "badge": seen.badge if seen else "not readable" if made else "being examined",
        "title": seen.title if seen else clean(made.why) if made else "",
        "whole": seen.whole if seen else "",
        "spark": seen.spark if seen else (),
        "last_loss": seen.last_loss if seen else "",
        "steps": f"{seen.steps if seen else entry.steps:,}",
        "status": clean(entry.status),
        "running": entry.status == RUNNING,
        "started": time.strftime("%Y-%m-%d %H:%M", begun) if begun else "",
        "started_iso": time.strftime("%Y-%m-%dT%H:%M:%S%z", begun) if begun else "",
    }
    return row, due
