"""A run's page and its state now: the figures and the visible charts at once, the verdict as soon as it is reached."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchdoctor.findings import Verdict
from torchdoctor.last_seen import RUNNING
from torchdoctor.plots.chart import Chart
from torchdoctor.plots.svg import can_draw, draw_svg
from torchdoctor.report.examined import WORDS
from torchdoctor.report.html import Told, describe
from torchdoctor.report.record import describe_figures
from torchdoctor.report.template import embedded
from torchdoctor.report.text import clean
from torchdoctor.run import Run
from torchdoctor.store.journal import LONGEST
from torchdoctor.summary import summary
from torchdoctor.telling import Opened
from torchdoctor.ui.captured import has_kept
from torchdoctor.ui.drawing import Window, draw
from torchdoctor.ui.layers import grow_tree
from torchdoctor.ui.library import Library, Made
from torchdoctor.ui.templates import render, render_part

PREVIEWS = {"wide": (1200, 322), "narrow": (350, 266)}
"""Of the loss: the first paint has it, before the charts' script is there. About the room that the chart takes, on a
screen and on a phone."""
LOSS = "loss"
KEY = "live"
MOST_CHARTS = 24
"""Charts in one answer: more than fit on any screen."""


@dataclass(frozen=True)
class Wanted:
    """What a page asks for."""

    since: str = ""
    have: Sequence[str] = ()
    """tags of the parts that it shows"""
    charts: Sequence[str] = ()
    window: Window | None = None
    layer: str = ""


def run_page(library: Library, name: str, form_token: str, place: str = "") -> str:
    """The page as far as it can be known at once; its script asks for the rest, below `place`. Without a token no note
    can be added."""
    stamp, run = library.open(name)
    figures = _figures(run)
    made, _ = library.told(name, stamp)  # from here on it is examined, unless it has been
    told = made.value.told if made is not None and made.value is not None else None
    chart = _draw(run, LOSS, told, Wanted())
    shown = clean(library.find(name).name)
    argv = run.info.get("argv")
    described = describe(told, KEY) if told is not None else None
    return render(
        "run.html.j2",
        title=shown,
        subtitle=clean(" ".join(map(str, argv)) if isinstance(argv, list) else ""),
        name=name,
        place=place,
        severity=described["severity"] if described else "waiting",
        status=_status(run),
        verdict=render_part("verdict", described) if described else "",
        figures=figures,
        loss=clean(chart.title) if chart is not None else "",
        previews=[(kind, draw_svg(chart, size)) for kind, size in PREVIEWS.items()]
        if chart is not None and can_draw(chart)
        else [],
        begun=embedded(
            {
                "stamp": f"{stamp}.",
                "concluded": told is not None,
                "charts": {LOSS: chart.to_json()} if chart is not None else {},
            }
        ),
        captures=has_kept(library, name),
        diagnoses=WORDS,
        form_token=form_token,
        longest=LONGEST,
    )


def describe_state(library: Library, name: str, wanted: Wanted) -> dict[str, Any]:
    """Without the parts that the page has already, by the stamp it was last given."""
    stamp, run = library.open(name)
    made, newer = library.told(name, stamp)
    told = made.value.told if made is not None and made.value is not None else None
    examined = made.stamp if made is not None else ""
    recorded, _, concluded = wanted.since.partition(".")
    answer: dict[str, Any] = {
        "stamp": f"{stamp}.{examined}",
        "running": run.info.get("status") == RUNNING,
        "pending": newer,
        "status": _status(run),
        "charts": {
            chart: drawn.to_json() if (drawn := _draw(run, chart, told, wanted, stamp == examined)) else None
            for chart in list(wanted.charts)[:MOST_CHARTS]
        },
    }
    if recorded != stamp:
        answer |= {"figures": _figures(run), "captures": has_kept(library, name)}
    if made is not None and concluded != examined:
        answer |= _parts(made, wanted.have)
    return answer


def _draw(run: Run, chart: str, told: Told | None, wanted: Wanted, current: bool = False) -> Chart | None:
    """`current`: what was told is of the very state that is asked for."""
    if told is None:
        return draw(run, chart, (), wanted.window, wanted.layer)
    whole = next((c for c in told.charts if c.name == chart), None)
    if current and whole is not None and wanted.window is None:
        return whole
    return draw(run, chart, told.verdict.findings, wanted.window, wanted.layer, whole)


def current_stamp(library: Library, name: str) -> str:
    """Cheap: looks at the files' sizes alone."""
    stamp = library.stamp(name)
    made, _ = library.told(name, stamp)
    return f"{stamp}.{made.stamp if made is not None else ''}"


def _parts(made: Made[Opened], have: Sequence[str]) -> dict[str, Any]:
    """Those that differ from what the page has: a tree of thousands of layers stays the same for long."""
    if made.value is None:
        return {"severity": "waiting", "failed": clean(made.why)}
    told: Told = made.value.told
    described = describe(told, KEY)
    # the loss stands on top, whatever the findings point at
    shown = {f["chart"] for f in described["findings"]} - {LOSS}
    for finding in described["findings"]:
        finding["chart"] = finding["chart"] if finding["chart"] != LOSS else None
    described["charts"] = [c for c in described["charts"] if c["name"] not in shown | {LOSS}]
    tree = grow_tree(made.value.run)
    names = ("verdict", "findings", "charts", "notes", "checklist", "record")
    parts = {each: render_part(each, described) for each in names} | {"layers": render_part("layers", tree)}
    tags = {each: hashlib.blake2b(html.encode(), digest_size=6).hexdigest() for each, html in parts.items()}
    parts = {each: html for each, html in parts.items() if tags[each] not in have}
    heard = [f"{f['severity']}: {f['title']}" for f in described["findings"]]
    return {"severity": described["severity"], "parts": parts, "tags": tags, "heard": heard}


def _figures(run: Run) -> str:
    verdict = Verdict(run={**run.info, "steps": run.steps}, findings=())
    return render_part("figures", {"figures": describe_figures(verdict, summary(run))})


def _status(run: Run) -> str:
    status = clean(str(run.info.get("status", "")))
    return f"training, {run.steps:,} steps so far" if status == RUNNING else f"{status}, {run.steps:,} steps"
