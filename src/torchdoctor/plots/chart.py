"""A chart as plain data in Plotly's own words: quick to build and to send, and a Figure once somebody wants one.

Backgrounds are clear and inks are set by the theme, so that one chart serves a light page, a dark one and paper.
"""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.findings import Finding, Severity
from torchdoctor.plots.palette import (
    BAND,
    BEHIND,
    CASING,
    CORE,
    CYCLE,
    DASHES,
    GREEN,
    ORANGE,
    PAPER,
    RED,
    SKY,
    faint,
    inked,
)
from torchdoctor.plots.thinning import enclose, pick
from torchdoctor.run import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MARKED = {Severity.ERROR: RED, Severity.WARNING: ORANGE, Severity.INFO: SKY}
SIGNS = {Severity.ERROR: "\u2716", Severity.WARNING: "\u25b2", Severity.INFO: "\u25cf"}
"""The same for eyes that see no colours; as in page.css."""
INK = {"light": ("#1f2328", "rgba(31, 35, 40, 0.12)"), "dark": ("#e6edf3", "rgba(230, 237, 243, 0.16)")}
"""Of texts, and of the lines behind the curves."""
LOG = {"type": "log", "minorloglabels": "complete", "nticks": 5, "tickformat": "~g"}
"""An axis: 0.02, not a small 2, and few of them."""
TITLE_LINE, LEGEND_ROW, LEGEND_WIDTH, REMARK = 22, 20, 600, 10
"""Pixels; figures are 700 wide unless they are told otherwise."""
TITLE_WIDTH = 80
"""Letters of a line in a figure's title; a page folds them by its own width."""
LARGEST = {"f4": float(np.finfo(np.float32).max), "i4": float(np.iinfo(np.int32).max)}
"""That half the bytes can hold; what is larger takes all."""
DASHED_POINTS, SIGNED_POINTS = 400, 8
SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open", "triangle-down-open", "star-open")
MARKS = 3
"""Findings that are marked in one chart; more would hide what they point at."""
ROOM = 0.01
"""Of the steps, on either side of them."""
PLACES = 12
"""Layers of one finding that are marked in one chart."""


@dataclass
class Chart:
    """`title` says what is to be seen; `name` is for anchors and file names."""

    name: str
    title: str
    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    tall: bool = False
    """needs room: one row a layer"""

    def to_dict(self, theme: str = "light") -> dict[str, Any]:
        layout = _over(dressed(theme), inked({**self.layout, "title": {"text": fold(self.title)}}, theme))
        layout["margin"] |= self._room(layout["title"]["text"].count("<br>") + 1) | self.layout.get("margin", {})
        if "legend" in layout:
            layout["legend"] |= {"x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
        if "yaxis2" in layout:  # its numbers need room, too: without it its title lies over them
            layout["yaxis2"] = {"automargin": True, **layout["yaxis2"]}
        return {"data": inked(self.data, theme), "layout": layout}

    def _room(self, lines: int) -> dict[str, int]:
        """For the title, remarks above the picture, and the legend below it."""
        remark = any(note.get("yanchor") == "bottom" for note in self.layout.get("annotations", ()))
        return {"t": 34 + TITLE_LINE * lines + REMARK * remark, "b": 54 + LEGEND_ROW * self._legend_rows()}

    def _legend_rows(self) -> int:
        """Room below the axis' title: Plotly would put one over the other. The pages' charts.js does the same."""
        shown = [t for t in self.data if t.get("name") and t.get("showlegend") is not False and t["type"] != "heatmap"]
        if len(shown) < 2:
            return 0
        longest = max(len(str(trace["name"])) for trace in shown)
        return -(-len(shown) // max(1, int(LEGEND_WIDTH / (50 + 6.5 * longest))))

    def figure(self, theme: str = "light") -> Figure:
        from plotly.graph_objects import Figure

        plain = self.to_dict(theme)
        return Figure(data=plain["data"], layout=plain["layout"])

    def to_json(self) -> dict[str, Any]:
        """For a page, which sets sizes and the theme's inks itself; arrays as packed numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "tall": self.tall,
            "data": pack(inked(self.data, "light")),
            "layout": self.layout,
        }


def fold(title: str) -> str:
    return "<br>".join(textwrap.wrap(title, TITLE_WIDTH))


def dressed(theme: str) -> dict[str, Any]:
    ink, line = INK[theme]
    axis = {"gridcolor": line, "linecolor": line, "zerolinecolor": line, "automargin": True}
    axis["exponentformat"] = "power"  # not 30p for 3e-11
    return {
        "template": "none",
        "paper_bgcolor": PAPER[theme],
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
        "colorway": inked(CYCLE, theme),
        "title": {"x": 0.02, "xanchor": "left", "font": {"size": 16}},
        "margin": {"l": 70, "r": 30, "t": 60, "b": 50},
        "xaxis": axis,
        "yaxis": axis,
    }


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """What both name as a whole is put together."""
    both = {key: _over(below[key], above[key]) for key in below.keys() & above if isinstance(below[key], dict)}
    return {**below, **above, **both}


def axes(x: str, y: str, *, log: bool = False, **more: Any) -> dict[str, Any]:
    """A layout with named axes."""
    vertical = {"title": {"text": y}, **(LOG if log else {})}
    legend = {"orientation": "h", "y": -0.22, "x": 0}
    return {"xaxis": {"title": {"text": x}}, "yaxis": vertical, "legend": legend, "hovermode": "x unified", **more}


def line(name: str, x: Any, y: Any, colour: str, **more: Any) -> dict[str, Any]:
    style = {"color": colour, "width": more.pop("width", 2), "dash": more.pop("dash", "solid")}
    x, y = pick(x, y)
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": style, **more}


def between(low: Any, high: Any, x: Any, colour: str, name: str) -> list[dict[str, Any]]:
    """The space between two curves, shaded."""
    x, low, high = enclose(x, low, high)
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return [{**edge, "y": low}, {**edge, "y": high, "fill": "tonexty", "fillcolor": faint(colour, 0.18), "name": name}]


def nth_line(number: int, name: str, x: Any, y: Any, **more: Any) -> dict[str, Any]:
    """One of several lines, which are told apart by their colours and, without them, by dashes. Dashes of many points
    take a browser longer than a frame: those lines have a few signs each instead."""
    drawn = line(name, x, y, nth_colour(number), **more)
    if len(drawn["x"]) <= DASHED_POINTS:
        drawn["line"]["dash"] = DASHES[number % len(DASHES)]
    elif number:
        marker = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7, "maxdisplayed": SIGNED_POINTS}
        drawn |= {"mode": "lines+markers", "marker": marker | {"color": nth_colour(number)}}
    return drawn


def nth_colour(number: int) -> str:
    return CYCLE[number % len(CYCLE)]


def band(low: float, high: float, text: str, side: str = "right") -> tuple[dict[str, Any], dict[str, Any]]:
    """Where healthy values lie: a shape and its name on the side where fewer curves are. On a logarithmic axis texts
    stand at logarithms, shapes not."""
    shape = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "fillcolor": BAND}
    shape |= {"line": {"width": 0}, "layer": "below"}
    place = {"xref": "paper", "x": 1 if side == "right" else 0, "xanchor": side}
    note = {"text": text, **place, "y": math.log10(high), "yanchor": "top", "bgcolor": BEHIND}
    return shape, {**note, "showarrow": False, "font": {"color": GREEN}}


def beside(text: str, colour: str | None = None, side: str = "right") -> dict[str, Any]:
    """A remark above the picture, in its corner."""
    place = {"xref": "paper", "yref": "paper", "x": 1 if side == "right" else 0, "y": 1.0, "xanchor": side}
    font = {"size": 11} | ({"color": colour} if colour else {})
    return {"text": text, **place, "yanchor": "bottom", "showarrow": False, "font": font}


# -- what findings point at ----------------------------------------------------------------


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are marked: not what follows from another one, nor what is only worth knowing."""
    return [f for f in findings if f.consequence_of is None and f.severity is not Severity.INFO]


def mark_findings(chart: Chart, findings: Sequence[Finding], last_step: int, height: float = 1.0) -> None:
    """A line where each finding begins, with its name; those without a step are marked by mark_places."""
    placed = [f for f in causes(findings) if f.first_step is not None][:MARKS]
    shapes, notes = chart.layout.setdefault("shapes", []), chart.layout.setdefault("annotations", [])
    last_step = max([last_step, *(f.first_step or 0 for f in placed)])  # one may begin after the last look
    if placed:  # else the axis grows until their names fit, and the picture shrinks
        ends = {"minallowed": -ROOM * last_step, "maxallowed": (1 + ROOM) * last_step}
        chart.layout.setdefault("xaxis", {})["autorangeoptions"] = ends
    over_heat = any(trace.get("type") == "heatmap" for trace in chart.data)
    for number, finding in enumerate(placed):
        colour, at = MARKED[finding.severity], finding.first_step or 0
        late = at > 0.7 * last_step
        across = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
        if over_heat:
            shapes.append({**across, "line": {"color": CASING, "width": 4}})
        shapes.append({**across, "line": {"color": CORE if over_heat else colour, "dash": "dot", "width": 1.5}})
        note = {"x": at, "yref": "paper", "y": height - 0.08 * number, "xanchor": "right" if late else "left"}
        notes.append(_named(finding, finding.name) | note)


def mark_places(chart: Chart, findings: Sequence[Finding], labels: Mapping[str, str], axis: str) -> None:
    """Signs on the rows (`axis` y) or over the bars (x) of layers that findings name; `labels` are those of the axis
    by layer or parameter. Names of findings stand beside their first row, unless at their step; of bars above all."""
    notes, told = chart.layout.setdefault("annotations", []), []
    for finding in causes(findings)[:MARKS]:
        found = list(dict.fromkeys(labels[name] for name in named_by(finding, labels)))[:PLACES]
        sign = SIGNS[finding.severity]
        for number, at in enumerate(found):
            if axis == "y":
                is_told = number > 0 or finding.first_step is not None
                place = {"xref": "paper", "x": 0, "xanchor": "left", "y": at}
                notes.append(_named(finding, sign if is_told else f"{sign} {finding.name}") | place)
            else:
                notes.append(_named(finding, sign) | {"yref": "paper", "y": 1, "yanchor": "top", "x": at})
        told += [finding] if found and axis == "x" else []
    if told:
        named = ", ".join(f"{SIGNS[f.severity]} {f.name}" for f in told)
        notes.append(beside(named, MARKED[told[0].severity], "left"))


def named_by(finding: Finding, names: Iterable[str]) -> list[str]:
    """Those of the names that a finding points at: parameters, else layers, or the parameters of a layer."""
    parameters = {place.parameter for place in finding.where if place.parameter}
    modules = {place.module for place in finding.where if place.module}
    loose = {place.module for place in finding.where if place.module and not place.parameter}
    return [n for n in names if n in parameters or n in modules or n.rpartition(".")[0] in loose]


def _named(finding: Finding, text: str) -> dict[str, Any]:
    font = {"color": MARKED[finding.severity], "size": 12}
    return {"text": text, "showarrow": False, "font": font, "bgcolor": BEHIND, "hovertext": finding.title}


def shorten(name: str, most: int = 34) -> str:
    """A layer's name on an axis: its end tells more than its beginning."""
    return name if len(name) <= most else "..." + name[3 - most :]


def percent(share: float) -> str:
    """What is neither none nor all is never told as such."""
    if not math.isfinite(share):
        return "an unknown share"
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "less than 1%"
    return "more than 99%" if text == "100%" and share < 1 else text


def tell_when(trace: Trace, found: np.ndarray) -> str:
    """Where rows of a trace are so: to its end, at one step, or at several; nothing where none is."""
    rows = np.flatnonzero(found)
    if not len(rows):
        return ""
    first = f"step {trace.steps[rows[0]]}" if trace.merged == 1 else f"about step {trace.steps[rows[0]]}"
    if found[rows[0] :].all() and (trace.merged == 1 or len(rows) > 1):  # of one merged row a single step may be so
        return f"from {first} on"
    return f"at {first}" + (f" and {len(rows) - 1} later times" if len(rows) > 1 else "")


def pack(value: Any) -> Any:
    """Arrays as base64, which Plotly reads by itself; numbers that are not finite as null."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fi":
            return value.tolist()
        size = abs(value).max(initial=0, where=np.isfinite(value))
        few = "f4" if value.dtype.kind == "f" else "i4"
        dtype = few if size <= LARGEST[few] else "f8"
        raw = np.ascontiguousarray(value.astype(f"<{dtype}"))
        packed = {"dtype": dtype, "bdata": base64.b64encode(raw.tobytes()).decode()}
        return packed | ({"shape": ", ".join(map(str, value.shape))} if value.ndim > 1 else {})
    if isinstance(value, dict):
        return {key: pack(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [pack(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
