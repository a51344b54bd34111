"""The curves of the gallery: the loss with the places that give it away, and its healthy twin behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torchdoctor.lab.gallery.exhibits import Exhibit
from torchdoctor.lab.gallery.tell_tales import Mark
from torchdoctor.plots import DRAWN
from torchdoctor.plots.chart import Chart, line
from torchdoctor.plots.losses import draw_loss
from torchdoctor.plots.palette import GREY, RED
from torchdoctor.run import Run

TWIN_CURVES = {"training, smoothed": "healthy twin, training", "validation": "healthy twin, validation"}
ARROW = 42
"""Pixels from a place to its words."""


def draw_curve(run: Run, linear: bool = False) -> Chart | None:
    """The loss alone, as a stranger would see it. None while nothing was recorded."""
    chart = draw_loss(run)
    if chart is not None and linear:
        axis = {key: value for key, value in chart.layout["yaxis"].items() if key not in ("type", "exponentformat")}
        chart.layout["yaxis"] = axis
    return chart


def draw_exhibit(exhibit: Exhibit, run: Run, twin: Run | None = None, marked: bool = True) -> list[Chart]:
    """The loss first, then the figures that show it, each with the twin's own after it."""
    charts = []
    loss = draw_curve(run, exhibit.linear)
    if loss is not None:
        if twin is not None:
            _lay_under(loss, twin)
        if marked:
            _point(loss, exhibit.tell(run))
        charts.append(loss)
    for name in exhibit.charts:
        for each, said in ((run, ""), (twin, "The healthy twin: ")):
            chart = DRAWN[name](each, ()) if each is not None else None
            if chart is not None:
                title = f"{said}{_lower(chart.title)}" if said else chart.title
                charts.append(replace(chart, name=f"{chart.name}{'-twin' if said else ''}", title=title))
    return charts


def _lay_under(chart: Chart, twin: Run) -> None:
    """The twin's curves in grey, behind."""
    other = draw_loss(twin)
    curves = [trace for trace in other.data if trace.get("name") in TWIN_CURVES] if other is not None else []
    behind = [
        line(TWIN_CURVES[trace["name"]], trace["x"], trace["y"], GREY, dash=dash)
        for trace, dash in zip(curves, ("solid", "dash"), strict=False)
    ]
    chart.data[:0] = behind


def _point(chart: Chart, marks: Sequence[Mark]) -> None:
    """Arrows with words; on a logarithmic axis they stand at logarithms."""
    is_log = chart.layout["yaxis"].get("type") == "log"
    middle = 0.6 * _last_step(chart)
    notes = chart.layout.setdefault("annotations", [])
    for number, mark in enumerate(marks):
        if not math.isfinite(mark.value) or (is_log and mark.value <= 0):
            continue
        reach = ARROW + 16 * (number % 2)  # neighbours are not written over each other
        away = {"above": (0, -reach), "below": (0, reach), "right": (reach, 0)}[mark.side]
        place = {"x": mark.step, "y": math.log10(mark.value) if is_log else mark.value}
        style = {"showarrow": True, "arrowhead": 2, "arrowcolor": RED, "arrowwidth": 1.5, "font": {"color": RED}}
        anchor = "right" if mark.step > middle else "left"
        notes.append({**place, **style, "text": mark.text, "ax": away[0], "ay": away[1], "xanchor": anchor})


def _last_step(chart: Chart) -> float:
    return max((float(trace["x"][-1]) for trace in chart.data if len(trace["x"])), default=0.0)


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]
