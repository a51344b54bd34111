"""The journal of a run: what its author wrote about it, one line of JSON each, beside its record."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from torchdoctor.errors import UsageError
from torchdoctor.opening import NO_LINK, open_plain
from torchdoctor.store.documents import write_json

JOURNAL = "journal.jsonl"
LONGEST = 4000
"""Characters of one note."""
MAX_BYTES = 1_000_000


def add_note(folder: Path, text: str) -> None:
    text = " ".join(text.split())
    if not text:
        raise UsageError("the note is empty")
    if len(text) > LONGEST:
        raise UsageError(f"the note has {len(text):,} characters; {LONGEST:,} are the most")
    line = write_json({"when": time.time(), "text": text}) + "\n"
    handle = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """Oldest first; what is no note is left out."""
    try:
        descriptor = open_plain(folder / JOURNAL)
    except OSError:
        return []
    if descriptor is None:
        return []
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(MAX_BYTES).decode("utf-8", "replace")
    found = []
    for line in text.splitlines():
        try:
            note = json.loads(line)
        except ValueError:
            continue
        if isinstance(note, dict) and isinstance(note.get("text"), str) and isinstance(note.get("when"), int | float):
            found.append({"when": float(note["when"]), "text": note["text"][:LONGEST]})
    return found
