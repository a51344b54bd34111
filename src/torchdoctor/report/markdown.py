"""A verdict as Markdown: for a pull request, an issue, or GitHub's job summary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchdoctor.findings import Finding, Place, Severity, Verdict
from torchdoctor.report.letter import explanation
from torchdoctor.report.sheet import current_folder, shorten
from torchdoctor.report.text import clean, clean_block

if TYPE_CHECKING:
    from torchdoctor.report.html import Kept

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")
MARKS = {Severity.ERROR: "Error", Severity.WARNING: "Warning", Severity.INFO: "Info"}


def dump(verdict: Verdict) -> str:
    return "\n".join(_write(verdict, current_folder())).rstrip() + "\n"


def dump_kept(kept: Kept) -> str:
    """What lies beside the record, in short: captured steps, what came of replays, the check of the script."""
    return "\n".join(_write_kept(kept)).rstrip() + "\n"


def _write_kept(kept: Kept) -> Iterator[str]:
    if kept.captures:
        lines = (f"- step {c['step']}: {plain(c['reason'])} ({_code(c['command'])})" for c in kept.captures)
        yield from ("### Captured steps", "", *lines, "")
    if kept.replays:
        told = ((r, f" with {plain(r['change'])}" if r["change"] else "") for r in kept.replays)
        yield from ("### Replays", "", *(f"- step {r['step']}{how}: {plain(r['conclusion'])}" for r, how in told), "")
    if kept.preflight and kept.preflight["said"]:
        yield from ("### Before training", "", plain(f"{kept.preflight['said']} {kept.preflight['warning']}"), "")


def _write(verdict: Verdict, cwd: Path) -> Iterator[str]:
    yield "## torchdoctor"
    yield ""
    yield from _explained(verdict)
    steps = int(verdict.run.get("steps") or 0)
    grave = [f for f in verdict.findings if f.severity is not Severity.INFO]
    if not grave:
        yield f"No fault found in {steps:,} steps; {len(verdict.examined)} diagnoses were examined."
        yield ""
    for finding in (f for f in grave if f.consequence_of is None):
        yield from _passage(finding, verdict, cwd)
    infos = [f for f in verdict.findings if f.severity is Severity.INFO]
    if infos:
        yield from ("### Worth knowing", "", *(f"- {_brief(f)}" for f in infos), "")
    if verdict.ruled_out:
        yield from ("### Ruled out", "", *(f"- `{clean(r.name)}`: {plain(r.text)}" for r in verdict.ruled_out), "")
    if verdict.silenced:
        places = (f"- `{clean(s.name)}` at {_code(_at(s.file, s.line, cwd))}" for s in verdict.silenced)
        yield from ("### Silenced by a comment", "", *places, "")


def _explained(verdict: Verdict) -> Iterator[str]:
    told = explanation(verdict)
    if told is None:
        return
    yield from ("### The error explained", "", plain(told.get("text", "")), "")
    yield from (f"**What to change.** {plain(told.get('instead', ''))}", "")
    if told.get("code"):
        yield from ("```python", clean_block(told["code"]).replace("```", "` ` `"), "```", "")


def _passage(finding: Finding, verdict: Verdict, cwd: Path) -> Iterator[str]:
    yield f"### {MARKS[finding.severity]}: {plain(finding.title)}"
    yield ""
    sure = f"{100 * min(finding.confidence, 0.99):.0f} % sure"
    since = f", from step {finding.first_step:,} on" if finding.first_step is not None else ""
    yield f"`{clean(finding.name)}` ({clean(finding.code)}), {sure}{since}. {plain(finding.summary)}"
    yield ""
    yield from (f"- {plain(e.text)}" for e in finding.evidence)
    places = [text for place in finding.where if (text := _place(place, cwd))]
    yield from (f"- at {text}" for text in places)
    yield ""
    yield f"**What to change.** {plain(finding.fix.text)}"
    yield ""
    if finding.fix.code:
        yield from ("```python", clean_block(finding.fix.code).replace("```", "` ` `"), "```", "")
    followers = [f for f in verdict.findings if f.consequence_of == finding.name]
    if followers:
        yield from ("What follows from it:", "", *(f"- {_brief(f)}" for f in followers), "")


def _brief(finding: Finding) -> str:
    return f"`{clean(finding.name)}` ({clean(finding.code)}): {plain(finding.title)}"


def _place(place: Place, cwd: Path) -> str:
    named = place.parameter or place.module
    parts = [_code(_at(place.file, place.line, cwd))] if place.file else []
    return ", ".join([*parts, *([_code(named)] if named else [])])


def _at(file: str, line: int | None, cwd: Path) -> str:
    short = shorten(file, cwd)
    return f"{short}:{line}" if line else short


def _code(text: object) -> str:
    return f"`{clean(text).replace('`', '')}`"


def plain(text: object) -> str:
    """Text that Markdown shows as it stands."""
    return _SPECIAL.sub(r"\\\1", clean(text))
