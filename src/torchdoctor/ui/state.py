"""A run's page and its state now: the figures and the visible charts at once, the verdict as soon as it is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchdoctor.findings import Verdict
from torchdoctor.plots.chart import Chart
from torchdoctor.report.examined import WORDS
from torchdoctor.report.html import Told, describe
from torchdoctor.report.record import describe_figures
from torchdoctor.report.text import clean
from torchdoctor.run import Run
from torchdoctor.store.info import RUNNING
from torchdoctor.store.journal import LONGEST
from torchdoctor.summary import summary
from torchdoctor.telling import Opened
from torchdoctor.ui.captured import has_kept
from torchdoctor.ui.drawing import Window, draw
from torchdoctor.ui.glance import draw_spark, find_loss
from torchdoctor.ui.layers import grow_tree
from torchdoctor.ui.library import Library, Made
from torchdoctor.ui.templates import render, render_part

PREVIEW = (1000, 300)
"""Of the loss, in units of its own: the first paint has it, before the charts' script is there."""
KEY = "live"
MOST_CHARTS = 24
"""Charts in one answer: more than fit on any screen."""


@dataclass(frozen=True)
class Wanted:
    """What a page asks for."""

    since: str = ""
    charts: Sequence[str] = ()
    window: Window | None = None
    layer: str = ""


def run_page(library: Library, name: str, form_token: str, place: str = "") -> str:
    """The page as far as it can be known at once; its script asks for the rest, below `place`. Without a token no note
    can be added."""
    _, run = library.open(name)
    shown = clean(library.find(name).name)
    argv = run.info.get("argv")
    return render(
        "run.html.j2",
        title=shown,
        subtitle=clean(" ".join(map(str, argv)) if isinstance(argv, list) else ""),
        name=name,
        place=place,
        severity="waiting",
        status=_status(run),
        figures=_figures(run),
        preview=draw_spark(find_loss(run), PREVIEW),
        captures=has_kept(library, name),
        diagnoses=WORDS,
        form_token=form_token,
        longest=LONGEST,
    )


def describe_state(library: Library, name: str, wanted: Wanted) -> dict[str, Any]:
    """Without the parts that the page has already, by the stamp it was last given."""
    stamp, run = library.open(name)
    made, newer = library.told(name)
    told = made.value.told if made is not None and made.value is not None else None
    examined = made.stamp if made is not None else ""
    answer: dict[str, Any] = {
        "stamp": f"{stamp}.{examined}",
        "running": run.info.get("status") == RUNNING,
        "pending": newer,
        "status": _status(run),
        "figures": _figures(run),
        "charts": {
            chart: drawn.to_json() if (drawn := _draw(run, chart, told, wanted)) else None
            for chart in list(wanted.charts)[:MOST_CHARTS]
        },
    }
    if made is not None and wanted.since.partition(".")[2] != examined:
        answer |= _parts(made)
    return answer


def _draw(run: Run, chart: str, told: Told | None, wanted: Wanted) -> Chart | None:
    if told is None:
        return draw(run, chart, (), wanted.window, wanted.layer)
    whole = next((c for c in told.charts if c.name == chart), None)
    return draw(run, chart, told.verdict.findings, wanted.window, wanted.layer, whole)


def current_stamp(library: Library, name: str) -> str:
    """Cheap: looks at the files' sizes alone."""
    made, _ = library.told(name)
    return f"{library.stamp(name)}.{made.stamp if made is not None else ''}"


def _parts(made: Made[Opened]) -> dict[str, Any]:
    if made.value is None:
        return {"severity": "waiting", "failed": clean(made.why)}
    told: Told = made.value.told
    described = describe(told, KEY)
    # the loss stands on top, whatever the findings point at
    shown = {f["chart"] for f in described["findings"]} - {"loss"}
    for finding in described["findings"]:
        finding["chart"] = finding["chart"] if finding["chart"] != "loss" else None
    described["charts"] = [c for c in described["charts"] if c["name"] not in shown | {"loss"}]
    tree = grow_tree(made.value.run)
    names = ("verdict", "findings", "charts", "notes", "checklist", "record")
    parts = {each: render_part(each, described) for each in names} | {"layers": render_part("layers", tree)}
    heard = [f"{f['severity']}: {f['title']}" for f in described["findings"]]
    return {"severity": described["severity"], "parts": parts, "heard": heard}


def _figures(run: Run) -> str:
    verdict = Verdict(run={**run.info, "steps": run.steps}, findings=())
    return render_part("figures", {"figures": describe_figures(verdict, summary(run))})


def _status(run: Run) -> str:
    status = clean(str(run.info.get("status", "")))
    return f"training, {run.steps:,} steps so far" if status == RUNNING else f"{status}, {run.steps:,} steps"
