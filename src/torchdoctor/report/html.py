"""A run, or two, as one page that opens offline: the verdict on top, each finding with its picture, then the record."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchdoctor import __version__
from torchdoctor.findings import Finding, Verdict
from torchdoctor.report.examined import list_diagnoses
from torchdoctor.report.headlines import causes_of, heading, headline_of
from torchdoctor.report.quoting import describe_place
from torchdoctor.report.record import describe_figures, describe_record
from torchdoctor.report.template import embedded, environment, part, plotly_script
from torchdoctor.report.text import clean, clean_block

if TYPE_CHECKING:
    from torchdoctor.plots.chart import Chart


@dataclass(frozen=True)
class Kept:
    """What lies beside a run's record, in the words of the templates."""

    captures: Sequence[Mapping[str, Any]] = ()
    replays: Sequence[Mapping[str, Any]] = ()
    preflight: Mapping[str, Any] | None = None
    previews: Sequence[Chart] = ()
    """of captured batches, named as `preview_name` says; none unless they were asked for"""


def preview_name(capture: str) -> str:
    return f"captured-{capture}"


@dataclass(frozen=True)
class Told:
    """One run for a page: what was concluded and what is drawn."""

    name: str
    verdict: Verdict
    charts: Sequence[Chart]
    pictures: Mapping[str, str]
    """name of a finding -> name of its chart"""
    summary: Mapping[str, Any]
    notes: Sequence[Mapping[str, str]] = ()
    kept: Kept = Kept()


@dataclass(frozen=True)
class Compared:
    """Two runs against each other."""

    said: str
    names: tuple[str, str]
    rows: Sequence[tuple[str, str, str]] = ()
    charts: Sequence[Chart] = field(default_factory=list)


def write_page(told: Sequence[Told], comparison: Compared | None = None) -> str:
    """The whole page; everything in it that comes from a run is escaped."""
    drawn: dict[str, dict[str, Any]] = {
        str(i): {c.name: c.to_json() for c in (*each.charts, *each.kept.previews)} for i, each in enumerate(told)
    }
    if comparison is not None:
        drawn["both"] = {c.name: c.to_json() for c in comparison.charts}
    names = " and ".join(each.name for each in told)
    runs = [describe(each, str(i)) for i, each in enumerate(told)]
    if comparison is not None:
        runs = [{**each, "name": name} for each, name in zip(runs, comparison.names, strict=True)]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            nonce=secrets.token_urlsafe(16),
            heading=clean(names),
            subtitle=clean(_subtitle(told)),
            runs=runs,
            comparison=comparison,
            version=__version__,
            # ours, or escaped already: the template takes these as they are
            style=part("page.css"),
            charting=part("charts.js"),
            script=part("page.js"),
            copying=part("copy.js"),
            plotly=plotly_script().replace("</script", "<\\/script"),
            charts=embedded(drawn),
        )
    )


def describe(told: Told, key: str) -> dict[str, Any]:
    """A run in the words of the templates; `key` is what its charts are found under."""
    verdict = told.verdict
    causes, top = causes_of(verdict), headline_of(verdict)
    shown = {told.pictures.get(f.name) for f in causes}
    return {
        "key": key,
        "name": clean(told.name),
        "severity": top.severity,
        "badge": top.badge,
        "title": top.title,
        "summary": top.summary,
        "figures": describe_figures(verdict, told.summary),
        "findings": [_finding(f, told, key) for f in causes],
        "charts": [
            {"name": c.name, "title": clean(c.title), "tall": c.tall} for c in told.charts if c.name not in shown
        ],
        "checklist": list_diagnoses(verdict, key),
        "captures": [_captured(capture, told.kept.previews) for capture in told.kept.captures],
        "replays": list(told.kept.replays),
        "preflight": told.kept.preflight,
        "record": describe_record(verdict),
        "notes": [{k: clean(v) for k, v in note.items()} for note in told.notes],
    }


def _captured(capture: Mapping[str, Any], previews: Sequence[Chart]) -> dict[str, Any]:
    chart = next((c for c in previews if c.name == preview_name(capture["name"])), None)
    return {**capture, "chart": chart.name if chart else "", "chart_title": clean(chart.title) if chart else ""}


def _finding(finding: Finding, told: Told, key: str) -> dict[str, Any]:
    chart = told.pictures.get(finding.name)
    titles = {c.name: c.title for c in told.charts}
    confirm = finding.confirm
    followers = [f for f in told.verdict.findings if f.consequence_of == finding.name]
    return {
        "anchor": f"finding-{key}-{clean(finding.name)}",
        "name": clean(finding.name),
        "code": clean(finding.code),
        "severity": finding.severity.value,
        "title": heading(finding.title),
        "summary": clean(finding.summary),
        "sure": f"{100 * min(finding.confidence, 0.99):.0f} % sure",
        "since": f"from step {finding.first_step:,} on" if finding.first_step is not None else "",
        "chart": chart,
        "chart_title": clean(titles.get(chart or "", "")),
        "evidence": [clean(e.text) for e in finding.evidence],
        "places": [describe_place(p, told.verdict.run) for p in finding.where],
        "fix": clean(finding.fix.text),
        "fix_lead": finding.fix.lead,
        "fix_code": clean_block(finding.fix.listing) if finding.fix.listing else "",
        "confirm": clean(confirm.text) if confirm is not None else "",
        "confirm_command": clean(confirm.command) if confirm is not None and confirm.command else "",
        "followers": [{"name": clean(f.name), "title": clean(f.title)} for f in followers],
    }


def _subtitle(told: Sequence[Told]) -> str:
    argv = told[0].verdict.run.get("argv") if len(told) == 1 else None
    return " ".join(map(str, argv)) if isinstance(argv, list | tuple) else f"{len(told)} runs"
