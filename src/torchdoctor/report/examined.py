"""The verdict as a list to walk: every diagnosis by family, in the order of search, with what is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torchdoctor.findings import Verdict
from torchdoctor.opening import current_folder
from torchdoctor.report.found import reason_of
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean
from torchdoctor.rules import find

FOUND, RULED_OUT, CLEAR, UNKNOWN = "found", "ruled-out", "clear", "unknown"
WORDS = {FOUND: "found", RULED_OUT: "ruled out", CLEAR: "nothing found", UNKNOWN: "not examined"}
"""What can be said of a diagnosis, in the order in which it is counted."""


def list_diagnoses(verdict: Verdict, key: str) -> dict[str, Any]:
    """`families` with their entries, and how many there are of each kind; `key` is that of the findings' anchors."""
    entries = dict(_entries(verdict, key))
    named = [*verdict.families, *(name for name in entries if name not in verdict.families)]
    families: dict[str, list[dict[str, str]]] = {}
    for name in named:
        if name in entries:
            families.setdefault(verdict.families.get(name, "other"), []).append(entries[name])
    counts = Counter(entry["kind"] for entry in entries.values())
    return {
        "families": [{"name": clean(family), "entries": held} for family, held in families.items()],
        "counts": {kind: counts[kind] for kind in WORDS},
        "words": WORDS,
        "said": ", ".join(f"{counts[kind]} {words}" for kind, words in WORDS.items() if counts[kind]),
    }


def _entries(verdict: Verdict, key: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What says more about a diagnosis comes later: it takes the place of what says less."""
    for name in verdict.examined:
        yield name, _entry(name, CLEAR, _absent(name))
    for missing in verdict.not_examined:
        yield missing.name, _entry(missing.name, UNKNOWN, reason_of(missing.needs, verdict.run)[1])
    for ruled in verdict.ruled_out:
        yield ruled.name, _entry(ruled.name, RULED_OUT, ruled.text)
    for silenced in verdict.silenced:
        place = f"{shorten(silenced.file, current_folder())}:{silenced.line}"
        yield silenced.name, _entry(silenced.name, FOUND, f"{silenced.title} (allowed by a comment at {place})", "info")
    for finding in reversed(verdict.findings):
        text = f"{finding.title} (follows from {finding.consequence_of})" if finding.consequence_of else finding.title
        entry = _entry(finding.name, FOUND, text, finding.severity.value)
        yield finding.name, entry | {"anchor": "" if finding.consequence_of else f"finding-{key}-{clean(finding.name)}"}


def _absent(name: str) -> str:
    """What was looked for: a diagnosis states a fault, which must not be read as one."""
    loaded = find(name)
    if loaded is None:
        return "looked for"
    title = loaded.title.rstrip(".")
    first = title.partition(" ")[0]
    return f"looked for: {title if first[1:] != first[1:].lower() else title[:1].lower() + title[1:]}"


def _entry(name: str, kind: str, text: str, mark: str = "") -> dict[str, str]:
    return {"name": clean(name), "kind": kind, "text": clean(text), "mark": mark or kind, "anchor": ""}
