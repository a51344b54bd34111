"""A verdict as GitHub's workflow commands: annotations on the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchdoctor.findings import Finding, Place, Severity, Verdict
from torchdoctor.opening import current_folder
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean, clean_block

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def dump(verdict: Verdict) -> str:
    """One line for each finding; a verdict without findings is empty."""
    cwd = current_folder()
    return "".join(f"{line}\n" for finding in verdict.findings for line in _annotations(finding, cwd))


def _annotations(finding: Finding, cwd: Path) -> Iterator[str]:
    place = next((p for p in finding.where if p.file), Place())
    cause = f"\nThis follows from {finding.consequence_of}." if finding.consequence_of else ""
    listing = "\n".join(filter(None, (finding.fix.lead, clean_block(finding.fix.listing or ""))))
    message = "\n".join(
        filter(None, (clean(finding.summary or finding.title) + cause, clean(finding.fix.text), listing))
    )
    properties = [("title", f"{clean(finding.title)} ({clean(finding.name)})")]
    if place.file:
        properties = [("file", shorten(place.file, cwd)), ("line", str(place.line or 1)), *properties]
    said = ",".join(f"{key}={_escape(value, ':,')}" for key, value in properties)
    yield f"::{LEVELS[finding.severity]} {said}::{_escape(message)}"


def _escape(text: str, more: str = "") -> str:
    """GitHub's own escapes: percent signs and line ends, and in properties colons and commas."""
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
