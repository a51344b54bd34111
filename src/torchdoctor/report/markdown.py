"""A verdict, or a whole report, as Markdown: for a pull request, an issue, or GitHub's job summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchdoctor.findings import Finding, Place, Severity, Verdict
from torchdoctor.opening import current_folder
from torchdoctor.report.found import describe_warnings
from torchdoctor.report.headlines import headline_of
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean, clean_block

if TYPE_CHECKING:
    from torchdoctor.plots.chart import Chart
    from torchdoctor.report.html import Compared, Kept, Told

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")
LOSS = "loss"
"""The chart that every comment has."""
Links = Mapping[str, str]
"""Name of a chart -> where its picture lies."""
MARKS = {Severity.ERROR: "Error", Severity.WARNING: "Warning", Severity.INFO: "Info"}


def dump(verdict: Verdict) -> str:
    return "\n".join(_write(verdict, current_folder())).rstrip() + "\n"


def dump_report(told: Sequence[tuple[Told, Links]], comparison: tuple[Compared, Links] | None = None) -> str:
    """A run, or two against each other; what has no picture is told without."""
    return "\n".join(_write_report(told, comparison)).rstrip() + "\n"


def wanted_charts(told: Told) -> list[Chart]:
    """Those that a comment shows: of each finding that has a passage, and the loss."""
    names = {LOSS, *(told.pictures.get(finding.name) for finding in _passages(told.verdict))}
    return [chart for chart in told.charts if chart.name in names]


def _write_report(told: Sequence[tuple[Told, Links]], comparison: tuple[Compared, Links] | None) -> Iterator[str]:
    if comparison is not None:
        yield from _write_comparison(*comparison)
    for each, links in told:
        drawn = _pictures(each.charts, links)
        beside = {f.name: drawn[c] for f in _passages(each.verdict) if (c := each.pictures.get(f.name, "")) in drawn}
        yield from _write(each.verdict, current_folder(), "" if comparison is None else each.name, beside)
        if LOSS in drawn and drawn[LOSS] not in beside.values():
            yield from (drawn[LOSS], "")
        yield from _write_kept(each.kept)
        yield from _write_journal(each)


def _write_comparison(compared: Compared, links: Links) -> Iterator[str]:
    yield from (f"## {' and '.join(map(plain, compared.names))}", "", plain(compared.said), "")
    for picture in _pictures(compared.charts, links).values():
        yield from (picture, "")
    if compared.rows:
        yield from (f"| what | {' | '.join(map(plain, compared.names))} |", "|---|---|---|")
        yield from (f"| {' | '.join(map(plain, row))} |" for row in compared.rows)
        yield ""


def _write_journal(told: Told) -> Iterator[str]:
    if told.notes:
        lines = ((n, f" ({plain(n['run'])})" if n["run"] else "") for n in told.notes)
        yield from ("### Journal", "", *(f"- {n['when']}{of}: {plain(n['text'])}" for n, of in lines), "")


def _pictures(charts: Sequence[Chart], links: Links) -> dict[str, str]:
    return {c.name: f"![{plain(c.title)}]({links[c.name]})" for c in charts if c.name in links}


def _write_kept(kept: Kept) -> Iterator[str]:
    if kept.captures:
        lines = (f"- step {c['step']}: {plain(c['reason'])} ({_code(c['command'])})" for c in kept.captures)
        yield from ("### Captured steps", "", *lines, "")
    if kept.replays:
        told = ((r, f" with {plain(r['change'])}" if r["change"] else "") for r in kept.replays)
        yield from ("### Replays", "", *(f"- step {r['step']}{how}: {plain(r['conclusion'])}" for r, how in told), "")
    if kept.preflight and kept.preflight["said"]:
        yield from ("### Before training", "", plain(f"{kept.preflight['said']} {kept.preflight['warning']}"), "")


def _write(verdict: Verdict, cwd: Path, name: str = "", pictures: Mapping[str, str] | None = None) -> Iterator[str]:
    """`pictures` of findings stand under their titles."""
    yield f"## {plain(name) or 'torchdoctor'}"
    yield ""
    yield from _explained(verdict)
    if all(f.severity is Severity.INFO for f in verdict.findings):
        top = headline_of(verdict)
        yield plain(f"{top.title}. {top.summary}".strip())
        yield ""
    for finding in _passages(verdict):
        yield from _passage(finding, verdict, cwd, (pictures or {}).get(finding.name))
    infos = [f for f in verdict.findings if f.severity is Severity.INFO]
    if infos:
        yield from ("### Worth knowing", "", *(f"- {_brief(f)}" for f in infos), "")
    warned = describe_warnings(verdict, cwd)
    if warned:
        yield from ("### Warnings of libraries during the run", "", *(f"- {plain(line)}" for line in warned), "")
    if verdict.ruled_out:
        yield from ("### Ruled out", "", *(f"- `{clean(r.name)}`: {plain(r.text)}" for r in verdict.ruled_out), "")
    if verdict.silenced:
        places = (f"- `{clean(s.name)}` at {_code(_at(s.file, s.line, cwd))}" for s in verdict.silenced)
        yield from ("### Silenced by a comment", "", *places, "")


def _passages(verdict: Verdict) -> list[Finding]:
    """What is told at length: causes that are grave."""
    return [f for f in verdict.findings if f.severity is not Severity.INFO and f.consequence_of is None]


def _explained(verdict: Verdict) -> Iterator[str]:
    told = verdict.explanation
    if told is None:
        return
    yield from ("### The error explained", "", plain(told.get("text", "")), "")
    yield from (f"**What to change.** {plain(told.get('instead', ''))}", "")
    if told.get("code"):
        yield from ("```python", clean_block(told["code"]).replace("```", "` ` `"), "```", "")


def _passage(finding: Finding, verdict: Verdict, cwd: Path, picture: str | None = None) -> Iterator[str]:
    yield f"### {MARKS[finding.severity]}: {plain(finding.title)}"
    yield ""
    sure = f"{100 * min(finding.confidence, 0.99):.0f} % sure"
    since = f", from step {finding.first_step:,} on" if finding.first_step is not None else ""
    yield f"`{clean(finding.name)}` ({clean(finding.code)}), {sure}{since}. {plain(finding.summary)}"
    yield from ("", picture, "") if picture else ("",)
    yield from (f"- {plain(e.text)}" for e in finding.evidence)
    places = [text for place in finding.where if (text := _place(place, cwd))]
    yield from (f"- at {text}" for text in places)
    yield ""
    yield f"**What to change.** {plain(finding.fix.text)}"
    yield ""
    if finding.fix.lead:
        yield from (finding.fix.lead, "")
    if finding.fix.listing:
        yield from ("```python", clean_block(finding.fix.listing).replace("```", "` ` `"), "```", "")
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
