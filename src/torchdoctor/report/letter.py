"""One finding as a passage of the doctor's letter: what is wrong, what shows it, where, what to change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchdoctor.console import RenderableType, Text
from torchdoctor.findings import Evidence, Finding, Place, Verdict
from torchdoctor.report.sheet import QUIET, STYLES, Page, hang, indent, shorten
from torchdoctor.report.text import clean, number, on_log_scale, spark

EVIDENCE_SHOWN = 5
PLACES_SHOWN = 4
ZOO = Path(__file__).resolve().parents[1] / "zoo"
SOURCE_BYTES = 1_000_000
"""A source file larger than this is not opened to quote one line of it."""


def passage(finding: Finding, findings: Sequence[Finding], page: Page) -> Iterator[RenderableType]:
    """The whole of a finding that stands by itself, with what follows from it."""
    yield headline(finding, page)
    yield indent(page.line(finding.title, "bold"), 2)
    if clean(finding.summary) != clean(finding.title):
        yield indent(page.line(finding.summary), 2)
    yield indent(page.line(_certainty(finding), QUIET), 2)
    yield Text()
    if finding.evidence:
        yield page.heading("What shows it")
        for evidence in finding.evidence[:EVIDENCE_SHOWN]:
            yield page.bulleted(_evidence(evidence, page))
        yield Text()
    if finding.where:
        yield page.heading("Where")
        yield from _places(finding.where, page)
        yield Text()
    yield page.heading("What to change")
    yield from change(finding, page, 4)
    yield Text()
    followers = [f for f in findings if f.consequence_of == finding.name]
    if followers:
        yield page.heading("What follows from it")
        yield from consequences(finding, findings, page, 4)
        yield Text()
    if finding.confirm is not None:
        yield page.heading("To confirm it")
        yield indent(page.line(finding.confirm.text), 4)
        if finding.confirm.command:
            yield page.code(finding.confirm.command, 6)
        yield Text()


def explained(verdict: Verdict, page: Page) -> Iterator[RenderableType]:
    """The error that ended the script in plain words, where there are some."""
    told = verdict.explanation
    if told is None:
        return
    yield Text("  THE ERROR EXPLAINED", style="bold")
    yield indent(page.line(told.get("text", "")), 2)
    yield Text()
    parts = [told[key] for key in ("kept", "changed") if isinstance(told.get(key), Mapping)]
    places = [_read_place(part) for part in parts]
    if places:
        yield page.heading("Where")
        yield from _places(places, page)
        yield Text()
    yield page.heading("What to change")
    yield indent(page.line(told.get("instead", "")), 4)
    if told.get("code"):
        yield Text()
        yield page.code(told["code"], 8)
    if told.get("reason"):
        yield indent(page.line(f"What changed it could not be seen: {told['reason']}.", QUIET), 4)
    yield Text()


def _read_place(part: Mapping[str, Any]) -> Place:
    """From a run's own file, which may hold anything."""
    module, file, line = part.get("module"), part.get("file"), part.get("line")
    return Place(
        str(module) if module else None,
        file=file if isinstance(file, str) else None,
        line=line if isinstance(line, int) else None,
    )


def brief(finding: Finding, findings: Sequence[Finding], page: Page) -> Iterator[RenderableType]:
    """A further finding: its name, title and sentence, its first number, place and fix."""
    yield headline(finding, page)
    yield indent(page.line(finding.title, "bold"), 2)
    if finding.summary and clean(finding.summary) != clean(finding.title):
        yield indent(page.line(finding.summary), 2)
    for evidence in finding.evidence[:1]:
        yield page.bulleted(_evidence(evidence, page), 2)
    yield from _places(finding.where[:1], page, left=2)
    yield from change(finding, page, 2, "To change: ")
    yield from consequences(finding, findings, page, 2)
    yield Text()


def aside(finding: Finding, page: Page) -> RenderableType:
    """An info: its title and place, and one hanging sentence."""
    place = next((p for p in finding.where if p.file), None)
    at = f" ({shorten(place.file, page.cwd)}{f':{place.line}' if place.line else ''})" if place and place.file else ""
    text = Text.assemble(
        (f"{finding.name}", "cyan"), f" ({finding.code}): ", page.line(f"{finding.title.rstrip('.')}{at}", "bold")
    )
    if finding.summary and clean(finding.summary) != clean(finding.title):
        text.append("\n")
        text.append(page.line(finding.summary))
    return page.bulleted(text)


def headline(finding: Finding, page: Page) -> RenderableType:
    style = STYLES[finding.severity]
    return Text.assemble(
        "  ",
        (finding.severity.value.upper(), style),
        "  ",
        (clean(finding.name, page.ascii_only), style),
        f" ({clean(finding.code, page.ascii_only)})",
    )


def change(finding: Finding, page: Page, left: int, lead: str = "") -> Iterator[RenderableType]:
    yield indent(Text.assemble((lead, "bold"), page.line(finding.fix.text)), left)
    if finding.fix.lead:
        yield indent(page.line(finding.fix.lead), left)
    if finding.fix.listing:
        yield Text()
        yield page.code(finding.fix.listing, left + 4)


def consequences(
    cause: Finding, findings: Sequence[Finding], page: Page, left: int, above: frozenset[str] = frozenset()
) -> Iterator[RenderableType]:
    """One line for each finding that follows from this one, and under it what follows from that."""
    seen = above | {cause.name}
    for finding in findings:
        if finding.consequence_of != cause.name or finding.name in seen:
            continue
        text = Text.assemble(
            (finding.name, STYLES[finding.severity].removeprefix("bold ")),
            f" ({finding.code}, {finding.severity.value}): ",
            page.line(finding.title),
        )
        yield hang(Text(page.branch, style=QUIET), text, left)
        yield from consequences(finding, findings, page, left + 3, seen)


def _certainty(finding: Finding) -> str:
    words = f"{100 * min(finding.confidence, 0.99):.0f} % sure"
    if finding.first_step is None:
        return words
    if finding.last_step is None or finding.last_step == finding.first_step:
        return (
            f"{words}, from step {finding.first_step:,} on"
            if finding.last_step is None
            else (f"{words}, at step {finding.first_step:,}")
        )
    return f"{words}, steps {finding.first_step:,} to {finding.last_step:,}"


def _evidence(evidence: Evidence, page: Page) -> Text:
    text = page.line(evidence.text)
    drawn = [v for v in evidence.spark if v is not None]
    if len(drawn) < 2:
        return text
    finite = [v for v in drawn if math.isfinite(v)]
    text.append("\n")
    text.append(spark(drawn, page.ascii_only), style="cyan")
    text.append(f"  {number(drawn[0])} {page.arrow} {number(drawn[-1])}", style=QUIET)
    if finite and max(finite) > max(drawn[0], drawn[-1]):
        text.append(f", peak {number(max(finite))}", style=QUIET)
    if on_log_scale(drawn):
        text.append(" (log scale)", style=QUIET)
    return text


def _places(places: Iterable[Place], page: Page, left: int = 4) -> Iterator[RenderableType]:
    found = [p for p in places if p.file or p.module or p.parameter]
    for place in found[:PLACES_SHOWN]:
        text = Text()
        if place.file:
            at = shorten(place.file, page.cwd)
            text.append(page.line(f"{at}:{place.line}" if place.line else at, "bold"))
        layer = place.parameter or place.module
        if layer:
            text.append(", " if place.file else "")
            text.append(page.line(f"{'parameter' if place.parameter else 'layer'} {layer}"))
        yield page.bulleted(text, left)
        quoted = quote(place, page.cwd)
        if quoted:
            yield page.code(quoted, left + 4, style=QUIET)
    if len(found) > PLACES_SHOWN:
        yield indent(page.line(f"and {len(found) - PLACES_SHOWN} more", QUIET), left + 2)


def quote(place: Place, cwd: Path) -> str | None:
    """The source line, if it is a Python file under the current folder or in our zoo: a run's paths lead no further."""
    if not place.file or not place.line or place.line < 1:
        return None
    try:
        path = (cwd / place.file).resolve()
        near = any(path.is_relative_to(folder) for folder in (cwd.resolve(), ZOO))
        if not near or path.suffix != ".py" or path.stat().st_size > SOURCE_BYTES:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None
    return lines[place.line - 1].strip() or None if place.line <= len(lines) else None
